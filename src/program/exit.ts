import { closeSync } from 'node:fs';

import { reportToConsole } from '../report.js';

/** The exit codes of the programs. */
export const EXIT = { done: 0, failed: 1, usage: 2, interrupted: 3 } as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/**
 * How long the program may take to stop, in milliseconds: in total, as Docker sends SIGKILL after ten seconds;
 * for the requests in flight; and to send 503 to those that remain. Meanwhile, a connection may be idle for
 * `idleMs`, as a request may be on its way.
 */
export const STOPPING = {
  totalMs: 10_000,
  clientsMs: 8_000,
  lastResponsesMs: 500,
  idleMs: 500,
} as const;

/** How long the calls in progress may take when the process ends, in milliseconds. */
export const LAST_CALLS_MS = 500;

/** How long closing a store may take once the program has failed, in milliseconds. */
export const CLOSING_MS = 4_000;

const STDERR = 2;

/** Reports why the program fails, one message a line, and returns the exit code. */
export function failWith(code: ExitCode, ...messages: readonly string[]): ExitCode {
  for (const message of messages) reportToConsole(message);
  return code;
}

/**
 * Ends the process. A call to a hung file system or resolver may never return, and `process.exit`
 * would wait for it. If one takes longer than {@link LAST_CALLS_MS}, the process kills itself: a mount that
 * hangs, a FIFO and a resolver have each kept a process alive for ever without that.
 */
export function exit(code: ExitCode): void {
  endIfIdle();
  setInterval(endIfIdle, LAST_CALLS_MS / 50);
  setTimeout(() => {
    reportToConsole('a call to the system has not returned in time; the process kills itself');
    process.kill(process.pid, 'SIGKILL');
    // Process 1 of a container cannot kill itself, so it aborts. Node would print a stack trace before that.
    closeSync(STDERR);
    process.abort();
  }, LAST_CALLS_MS);

  function endIfIdle(): void {
    if (!process.getActiveResourcesInfo().some(isPoolCall)) process.exit(code);
  }
}

/**
 * Whether a resource is a call that a thread of libuv's pool makes: `FSReqCallback`, `FSReqPromise`,
 * `CloseReq`, `GetAddrInfoReqWrap` or `GetNameInfoReqWrap`. Node 26 does not list `fs.readFile` and
 * `fs.writeFile`, so the program must not use them.
 */
function isPoolCall(resource: string): boolean {
  return resource.includes('Req');
}

/** Resolves once all that was written to stdout and stderr has been taken, or the reader has closed them. */
export async function outputTaken(): Promise<undefined> {
  for (const stream of [process.stdout, process.stderr])
    await new Promise<void>((resolve) => stream.write('', () => resolve()));
}

/**
 * Closes a store after the program has failed. Resolves even if that fails or takes longer than
 * {@link CLOSING_MS}, so that the reason why the program has failed is reported in any case.
 */
export async function closeAfterFailure(store: { close(): Promise<void> }): Promise<void> {
  const timeUp = new Promise((resolve) => setTimeout(resolve, CLOSING_MS));
  await Promise.race([Promise.allSettled([store.close()]), timeUp]);
}
