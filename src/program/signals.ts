import cluster from 'node:cluster';
import { isatty } from 'node:tty';

import { reportToConsole as report } from '../report.js';
import { EXIT, exit } from './exit.js';

/** What signals, the terminal, or the primary of a cluster ask of the process. */
export interface Signals {
  /** Aborted on the first SIGTERM or SIGINT, when a terminal is closed, and when the primary of a cluster disconnects. */
  readonly stop: AbortSignal;
  /** Calls `reload` on each SIGHUP from now on, and at once if there was one before. */
  onReload(reload: () => void): void;
}

const STDIN = 0;

/**
 * Handles the signals to the process. A second SIGTERM or SIGINT ends it at once. With a
 * terminal as the standard input, SIGHUP comes from closing it, and stops the process.
 */
export function handleSignals(): Signals {
  const stopping = new AbortController();
  const stop = (): void => stopping.abort();
  let signals = 0;
  const onSignal = (): void => (++signals === 1 ? stop() : exit(EXIT.failed));
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  // The primary of a cluster stops a worker by disconnecting it.
  const { worker } = cluster;
  worker?.on('disconnect', stop);
  if (worker?.isConnected() === false) stop();

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
    stop();
  });
  return {
    stop: stopping.signal,
    onReload(reload) {
      onHangup = reload;
      if (isReloadDue) reload();
    },
  };
}

/** Resolves once a signal is aborted. */
export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve());
  });
}
