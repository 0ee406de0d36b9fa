import cluster from 'node:cluster';
import { isatty } from 'node:tty';

import { reportToConsole as report } from '../report.js';
import { EXIT, exit, LAST_CALLS_MS, STOPPING } from './exit.js';

/** The end of the program, which a signal or a failure requests. */
export interface Shutdown {
  /** Aborted once the program has to end. From then on, it has {@link STOPPING}`.totalMs`. */
  readonly requested: AbortSignal;
  /** Resolves when only the time for {@link exit} is left. */
  readonly timeUp: Promise<undefined>;
  readonly request: () => void;
  /** Sets what the first SIGTERM or SIGINT does, in place of requesting the shutdown. */
  readonly onSignal: (begin: () => void) => void;
}

/**
 * For one Ctrl-C, both the terminal and a program that forwards signals, such as npm, send SIGINT, within
 * milliseconds of each other.
 */
const SAME_SIGNAL_MS = 500;

const STDIN = 0;

/**
 * Requests a shutdown on the first SIGTERM or SIGINT, unless `onSignal` changes that, and when the primary of
 * a cluster disconnects. A second signal ends the process at once, unless it comes within
 * {@link SAME_SIGNAL_MS} of the first.
 */
export function handleSignals(): Shutdown {
  const stopping = new AbortController();
  const request = (): void => stopping.abort();
  const requested = stopping.signal;
  let begin = request;
  let firstAt: number | undefined;
  function onSignal(): void {
    const now = performance.now();
    if (firstAt === undefined) {
      firstAt = now;
      begin();
    } else if (now - firstAt >= SAME_SIGNAL_MS) exit(EXIT.failed);
  }
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  // The primary of a cluster stops a worker by disconnecting it.
  const { worker } = cluster;
  worker?.on('disconnect', request);
  if (worker?.isConnected() === false) request();

  const timeUp = aborted(requested).then(
    () =>
      new Promise<undefined>((resolve) => {
        setTimeout(() => resolve(undefined), STOPPING.totalMs - LAST_CALLS_MS);
      }),
  );
  return { requested, timeUp, request, onSignal: (other) => void (begin = other) };
}

/**
 * Handles SIGHUP. Returns a function that sets what each SIGHUP reloads, and reloads at once if a SIGHUP
 * came before. If the standard input is a terminal, SIGHUP means that it was closed, and requests a shutdown.
 */
export function handleHangups({ request }: Shutdown): (reload: () => void) => void {
  let isReloadDue = false;
  let onHangup = (): void => {
    isReloadDue = true;
  };
  // Not later: after the hangup, the standard input is no longer a terminal.
  const hasTerminal = isatty(STDIN);
  process.on('SIGHUP', () => {
    if (!hasTerminal) {
      onHangup();
      return;
    }
    report('SIGHUP: stopping, because the standard input is a terminal');
    request();
  });
  return (reload) => {
    onHangup = reload;
    if (isReloadDue) reload();
  };
}

/** Resolves once a signal is aborted. */
export function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(undefined);
    else signal.addEventListener('abort', () => resolve(undefined));
  });
}
