import { reportToConsole } from '../report.js';

/** The exit codes of the programs. */
export const EXIT = { done: 0, failed: 1, usage: 2, interrupted: 3 } as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** How long the calls in progress may take when the process ends, in milliseconds. */
export const LAST_CALLS_MS = 500;

/** Reports why the program fails, one message a line, and returns the exit code. */
export function fail(code: ExitCode, ...messages: readonly string[]): ExitCode {
  for (const message of messages) reportToConsole(message);
  return code;
}

/**
 * Ends the process. A call to a hung file system or resolver may never return, and `process.exit`
 * would wait for it. If one takes longer than {@link LAST_CALLS_MS}, the process kills itself.
 */
export function exit(code: ExitCode): void {
  endIfIdle();
  setInterval(endIfIdle, LAST_CALLS_MS / 50);
  setTimeout(() => {
    reportToConsole('a call to the system does not return; ending with SIGKILL');
    process.kill(process.pid, 'SIGKILL');
  }, LAST_CALLS_MS);

  function endIfIdle(): void {
    if (!process.getActiveResourcesInfo().some(isPoolCall)) process.exit(code);
  }
}

/** Whether a resource is a call that a thread of libuv's pool makes. */
function isPoolCall(resource: string): boolean {
  return /^(?:FSReq|GetAddrInfo)/.test(resource);
}

/** Ends the process `ms` milliseconds from now at the latest, whatever hangs. */
export function exitWithin(ms: number): void {
  setTimeout(
    () => exit(fail(EXIT.failed, 'the shutdown timed out; not all work was completed')),
    ms - LAST_CALLS_MS,
  );
}

/** Resolves once all that was written to stdout and stderr has been taken, or the reader has closed them. */
export async function outputTaken(): Promise<void> {
  for (const stream of [process.stdout, process.stderr])
    await new Promise<void>((resolve) => stream.write('', () => resolve()));
}
