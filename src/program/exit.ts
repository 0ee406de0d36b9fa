import { reportToConsole } from '../report.js';

/** The exit codes of the program. */
export const EXIT = { done: 0, failed: 1, usage: 2, interrupted: 3 } as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** Reports why the program fails, one message a line, and returns the exit code. */
export function failWith(code: ExitCode, ...messages: readonly string[]): ExitCode {
  for (const message of messages) reportToConsole(message);
  return code;
}

/**
 * Ends the process at once, even if a system call has not returned. `process.exit` would wait for
 * the call, which may never return from a file system that hangs.
 */
export function killProcess(): void {
  process.kill(process.pid, 'SIGKILL');
  // Only process 1 of a container gets here: the kernel ignores a SIGKILL from within. It ignores
  // the SIGABRT of abort(3), too, which then executes an invalid instruction: SIGSEGV, code 139.
  process.abort();
}
