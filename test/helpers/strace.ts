/**
 * Settings of Node that keep all file operations in one thread, because strace counts the calls of
 * each thread.
 */
export const ONE_THREAD = { UV_THREADPOOL_SIZE: '1', UV_USE_IO_URING: '0' };

/** With `-D`, strace is not the parent of the program, and the program keeps its process id. */
const STRACE = [
  ...['strace', '-D', '-f', '-qq'],
  ...Object.entries(ONE_THREAD).flatMap(([name, value]) => ['-E', `${name}=${value}`]),
];

/** A selection of system calls. */
export interface Calls {
  /** Only calls that use these files. */
  readonly paths?: readonly string[];
  /** The names of the calls, or one of strace's own sets. */
  readonly names: string;
}

/**
 * A command that runs a program and injects faults into its system calls. The faults are in the
 * syntax of strace's option `inject`.
 */
export function injecting({ paths = [], names }: Calls, ...faults: readonly string[]): string[] {
  const only = [...paths.flatMap((path) => ['-P', path]), '-e', `trace=${names}`];
  const injections = faults.flatMap((fault) => ['-e', `inject=${fault}`]);
  return [...STRACE, ...only, '-o', '/dev/null', ...injections];
}
