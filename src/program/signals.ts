import { isatty } from 'node:tty';

import { reportToConsole } from '../report.js';
import { killProcess } from './exit.js';

/** How long the program may take to stop, in milliseconds: Docker sends SIGKILL after 10 s. */
export const SHUTDOWN_MS = 9_500;

/** How the parts of the program request its end, and learn that it is requested. */
export interface Shutdown {
  /** Aborted when the program has to end. It is killed if it takes {@link SHUTDOWN_MS} longer. */
  readonly requested: AbortSignal;
  /** Aborts `requested`. */
  readonly request: () => void;
  /** Sets the action for SIGHUP; runs it at once if a SIGHUP has already arrived. */
  readonly onHangup: (action: () => void) => void;
}

/**
 * A signal within this many milliseconds of the first is taken for the same one. For one Ctrl-C,
 * both the terminal and a program that forwards signals, such as npm, send SIGINT, within
 * milliseconds of each other.
 */
const SAME_SIGNAL_MS = 100;

const STOP_SIGNALS = ['SIGTERM', 'SIGINT'] as const;
const STDIN = 0;

/**
 * Handles signals. The first SIGTERM or SIGINT requests a shutdown, and a later one kills the
 * process. If the standard input is a terminal, SIGHUP means that the terminal was closed, and
 * requests a shutdown.
 */
export function handleSignals(): Shutdown {
  const stopping = new AbortController();
  const requested = stopping.signal;
  const request = (): void => stopping.abort();
  // The timer alone does not keep the process alive: it fires only if something else does.
  requested.addEventListener('abort', () => setTimeout(giveUp, SHUTDOWN_MS).unref());

  let killFrom = Infinity;
  for (const signal of STOP_SIGNALS)
    process.on(signal, () => {
      const now = performance.now();
      if (now >= killFrom) killProcess();
      killFrom = Math.min(killFrom, now + SAME_SIGNAL_MS);
      request();
    });

  let onHangup: (() => void) | undefined;
  let hasHungUp = false;
  // Tested now: when SIGHUP arrives, the standard input is no longer a terminal.
  const hasTerminal = isatty(STDIN);
  process.on('SIGHUP', () => {
    if (hasTerminal) {
      reportToConsole('SIGHUP: stopping, because the standard input is a terminal');
      request();
    } else if (onHangup) onHangup();
    else hasHungUp = true;
  });

  return {
    requested,
    request,
    onHangup(action) {
      onHangup = action;
      if (hasHungUp) action();
    },
  };
}

function giveUp(): void {
  reportToConsole('the shutdown timed out; not all work was completed');
  killProcess();
}

/** Resolves once an `AbortSignal` is aborted. */
export function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve());
  });
}

/** Whether an error is the reason for which `signal` was aborted, or was caused by it. */
export function isAbort(error: unknown, signal: AbortSignal): boolean {
  return signal.aborted && isCausedBy(error, signal.reason);
}

function isCausedBy(error: unknown, cause: unknown): boolean {
  return error === cause || (error instanceof Error && isCausedBy(error.cause, cause));
}
