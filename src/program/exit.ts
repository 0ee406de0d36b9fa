import { reportToConsole } from '../report.js';

/** The exit codes of the programs. */
export const EXIT = { done: 0, failed: 1, usage: 2, interrupted: 3 } as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** Reports why the program fails, one message a line, and returns the exit code. */
export function fail(code: ExitCode, ...messages: readonly string[]): ExitCode {
  for (const message of messages) reportToConsole(message);
  return code;
}
