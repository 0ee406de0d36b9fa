import { readFileSync } from 'node:fs';

/** All file operations in one thread: strace counts the calls of each thread. */
export const ONE_THREAD = { UV_THREADPOOL_SIZE: '1', UV_USE_IO_URING: '0' };

/** A tracer that is not the parent of the program, which keeps its process id. */
const STRACE = [
  ...['strace', '-D', '-f', '-qq'],
  ...Object.entries(ONE_THREAD).flatMap(([name, value]) => ['-E', `${name}=${value}`]),
];

/** A selection of system calls. */
export interface Calls {
  /** Only calls that use these files. */
  readonly paths?: readonly string[];
  /** Their names, or one of strace's own sets. */
  readonly names: string;
}

function only({ paths = [], names }: Calls): string[] {
  return [...paths.flatMap((path) => ['-P', path]), '-e', `trace=${names}`];
}

/** A command that runs a program and injects faults into its calls, in the syntax of strace's `inject`. */
export function injecting(calls: Calls, ...faults: readonly string[]): string[] {
  const injections = faults.flatMap((fault) => ['-e', `inject=${fault}`]);
  return [...STRACE, ...only(calls), '-o', '/dev/null', ...injections];
}

/** A command that runs a program and records its calls in a file. */
export function recording(calls: Calls, file: string): string[] {
  return [...STRACE, ...only(calls), '-o', file];
}

/** One call of a program: the `nth` one with this name in a thread. */
export interface Call {
  readonly name: string;
  readonly nth: number;
}

/**
 * Calls that change the disk or its visible state. A kill before any other call has the
 * same effect as a kill before the next one of these.
 */
const CHANGING =
  /^(?:mkdir|openat|p?write|p?writev|pwrite64|ftruncate|fsync|fdatasync|fchown|f?chmod|rename|unlink|bind|listen|futex)/;

/** The calls in a record that change something: for each name, the largest number that any one thread made. */
export function callsIn(record: string): Call[] {
  const counts = new Map<string, Map<string, number>>();
  for (const line of readFileSync(record, 'utf8').split('\n')) {
    const [, thread = '', name = ''] = /^(\d+) +(\w+)\(/.exec(line) ?? [];
    if (!CHANGING.test(name)) continue;
    const threads = counts.get(name) ?? new Map<string, number>();
    counts.set(name, threads.set(thread, (threads.get(thread) ?? 0) + 1));
  }
  return [...counts].flatMap(([name, threads]) =>
    Array.from({ length: Math.max(...threads.values()) }, (_, i) => ({ name, nth: i + 1 })),
  );
}
