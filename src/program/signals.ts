import { isatty } from 'node:tty';

import { reportToConsole as report } from '../report.js';
import { EXIT, STOPPING } from './exit.js';

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
    report('SIGHUP: stopping, because the standard input is a terminal');
    request();
  });

  const timeUp = aborted(requested).then(
    () =>
      new Promise<undefined>((resolve) => {
        setTimeout(() => resolve(undefined), STOPPING.totalMs);
      }),
  );
  return {
    ...{ requested, timeUp, request },
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
