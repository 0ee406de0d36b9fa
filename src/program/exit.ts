import { reportToConsole } from '../report.js';

/**
 * The exit codes of the program. `modified` is for a log that something else has changed: a process manager must not
 * start the program again on that file, as it would give stored ids to other plants.
 */
export const EXIT = { done: 0, failed: 1, usage: 2, interrupted: 3, modified: 4 } as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/**
 * How long the program may take to stop, in milliseconds: in total, as Docker sends SIGKILL after ten seconds;
 * for the requests in flight; and to send 503 to those that remain. Meanwhile, a connection may be idle for
 * `idleMs`, as a request may be on its way.
 */
export const STOPPING = {
  totalMs: 9_500,
  clientsMs: 8_000,
  lastResponsesMs: 500,
  idleMs: 500,
} as const;

/** Why settings or arguments are not valid: all faults, one sentence each. The program ends with code 2. */
export class SettingsError extends Error {
  override readonly name = 'SettingsError';

  constructor(
    readonly faults: readonly string[],
    options?: ErrorOptions,
  ) {
    super(faults.join('; '), options);
  }
}

/** Reports why the program fails, one message a line, and returns the exit code. */
export function failWith(code: ExitCode, ...messages: readonly string[]): ExitCode {
  for (const message of messages) reportToConsole(message);
  return code;
}

/**
 * Ends the process although a call to the system has not returned: `process.exit` would wait for it, and a
 * file system that hangs may never return. Process 1 of a container cannot kill itself, so it aborts.
 */
export function killProcess(): void {
  process.kill(process.pid, 'SIGKILL');
  process.abort();
}

/** Resolves once all that was written to stdout and stderr has been taken, or the reader has closed them. */
export async function outputTaken(): Promise<undefined> {
  for (const stream of [process.stdout, process.stderr])
    await new Promise<void>((resolve) => stream.write('', () => resolve()));
}

/**
 * Prints a line. If the reader of a pipe is slower, returns a promise to wait for before the next line:
 * until the reader has taken them, lines are kept in memory.
 */
export function printLine(line: string): Promise<void> | undefined {
  if (process.stdout.write(`${line}\n`)) return undefined;
  // Not `drain`, which never comes if the reader closes the pipe.
  return new Promise((resolve) => process.stdout.write('', () => resolve()));
}
