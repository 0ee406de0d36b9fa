import { isatty } from 'node:tty';

import { reportToConsole } from '../report.js';
import { killProcess } from './exit.js';

/** How long the program may take to stop, in milliseconds: Docker sends SIGKILL after ten seconds. */
export const SHUTDOWN_MS = 9_500;

/** Requests the end of the program, and handles SIGHUP until then. */
export interface Shutdown {
  /** Aborted once the program has to end. If it has not ended after {@link SHUTDOWN_MS}, it is killed. */
  readonly requested: AbortSignal;
  readonly request: () => void;
  /** Sets what each SIGHUP does, and does it at once if a SIGHUP came before. */
  readonly onHangup: (action: () => void) => void;
}

/**
 * Signals this soon after the first one, in milliseconds, do not count as second ones. For one Ctrl-C, both the
 * terminal and a program that forwards signals, such as npm, send SIGINT, within milliseconds of each other.
 */
const SAME_SIGNAL_MS = 100;

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
  // Not referenced: it only fires if something keeps the process alive.
  requested.addEventListener('abort', () => setTimeout(giveUp, SHUTDOWN_MS).unref());
  for (const signal of STOP_SIGNALS)
    process.on(signal, () => {
      request();
      setTimeout(killOnNext, SAME_SIGNAL_MS).unref();
    });

  let reaction: (() => void) | undefined;
  let isPending = false;
  // Asked now: after the hangup, the standard input is no longer a terminal.
  const hasTerminal = isatty(STDIN);
  process.on('SIGHUP', () => {
    if (hasTerminal) {
      reportToConsole('SIGHUP: stopping, because the standard input is a terminal');
      request();
    } else if (reaction) reaction();
    else isPending = true;
  });

  return {
    requested,
    request,
    onHangup(action) {
      reaction = action;
      if (isPending) action();
    },
  };
}

function giveUp(): void {
  reportToConsole('the shutdown timed out; not all work was completed');
  killProcess();
}

function killOnNext(): void {
  for (const signal of STOP_SIGNALS) process.on(signal, killProcess);
}

/** Resolves once an `AbortSignal` is aborted. */
export function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve());
  });
}

/** Whether an error is the reason of an `AbortSignal` that is aborted, or was caused by it. */
export function isAbort(error: unknown, signal: AbortSignal): boolean {
  return signal.aborted && isCausedBy(error, signal.reason);
}

function isCausedBy(error: unknown, cause: unknown): boolean {
  return error === cause || (error instanceof Error && isCausedBy(error.cause, cause));
}
