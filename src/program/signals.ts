import { isatty } from 'node:tty';

import { reportToConsole } from '../report.js';
import { killProcess } from './exit.js';

/** How long the program may take to stop, in milliseconds: Docker sends SIGKILL after ten seconds. */
export const SHUTDOWN_MS = 9_500;

/** The end of the program, which a signal or a failure requests, and what SIGHUP does until then. */
export interface Shutdown {
  /** Aborted once the program has to end. From then on, it has {@link SHUTDOWN_MS}. */
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
 * Handles signals. The first SIGTERM or SIGINT requests a shutdown, and a later one kills the process.
 * If the standard input is a terminal, SIGHUP means that it was closed, and requests a shutdown.
 */
export function handleSignals(): Shutdown {
  const stopping = new AbortController();
  const requested = stopping.signal;
  const request = (): void => stopping.abort();
  for (const signal of STOP_SIGNALS)
    process.on(signal, () => {
      request();
      setTimeout(killOnNext, SAME_SIGNAL_MS);
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

  const timeUp = new Promise<undefined>((resolve) => {
    requested.addEventListener('abort', () => setTimeout(resolve, SHUTDOWN_MS, undefined));
  });
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

function killOnNext(): void {
  for (const signal of STOP_SIGNALS) process.on(signal, killProcess);
}

/** Resolves once a signal is aborted. */
export function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(undefined);
    else signal.addEventListener('abort', () => resolve(undefined));
  });
}
