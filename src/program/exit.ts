import { isatty } from 'node:tty';

import { reportToConsole } from '../report.js';

/** The exit codes of the program. */
export const EXIT = { done: 0, failed: 1, usage: 2, interrupted: 3 } as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** The times of a stop, in milliseconds. */
export const STOPPING = {
  /** In total: Docker sends SIGKILL after ten seconds. */
  totalMs: 9_500,
  /** For the requests in flight. */
  clientsMs: 8_000,
  /** To send 503 to the requests that remain. */
  lastResponsesMs: 500,
  /** How long a connection may be idle meanwhile: a request may be on its way. */
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

/** The end of the program, which a signal or a failure requests, and what SIGHUP does until then. */
export interface Shutdown {
  /** Aborted once the program has to end. From then on, it has {@link STOPPING}`.totalMs`. */
  readonly requested: AbortSignal;
  /** Resolves when that time is up. */
  readonly timeUp: Promise<undefined>;
  readonly request: () => void;
  /** Sets what each SIGHUP does, and does it at once if a SIGHUP came before. */
  readonly onHangup: (action: () => void) => void;
}

/**
 * A second signal counts from this time after the first, in milliseconds. For one Ctrl-C, both the terminal
 * and a program that forwards signals, such as npm, send SIGINT, within milliseconds of each other.
 */
export const SAME_SIGNAL_MS = 100;

const STOP_SIGNALS = ['SIGTERM', 'SIGINT'] as const;
const STDIN = 0;

/**
 * Handles signals. The first SIGTERM or SIGINT requests a shutdown, and a later one ends the process at once.
 * If the standard input is a terminal, SIGHUP means that it was closed, and requests a shutdown.
 */
export function handleSignals(): Shutdown {
  const stopping = new AbortController();
  const requested = stopping.signal;
  const request = (): void => stopping.abort();
  for (const signal of STOP_SIGNALS)
    process.on(signal, () => {
      request();
      setTimeout(endOnNext, SAME_SIGNAL_MS);
    });

  let isHangupDue = false;
  let hangUp = (): void => void (isHangupDue = true);
  // Not later: after the hangup, the standard input is no longer a terminal.
  const hasTerminal = isatty(STDIN);
  process.on('SIGHUP', () => {
    if (!hasTerminal) {
      hangUp();
      return;
    }
    reportToConsole('SIGHUP: stopping, because the standard input is a terminal');
    request();
  });

  const timeUp = aborted(requested).then(
    () =>
      new Promise<undefined>((resolve) => {
        setTimeout(() => resolve(undefined), STOPPING.totalMs);
      }),
  );
  return {
    requested,
    timeUp,
    request,
    onHangup(action) {
      hangUp = action;
      if (isHangupDue) action();
    },
  };
}

function endOnNext(): void {
  for (const signal of STOP_SIGNALS) process.on(signal, () => process.exit(EXIT.failed));
}

/** Resolves once a signal is aborted. */
export function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(undefined);
    else signal.addEventListener('abort', () => resolve(undefined));
  });
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
