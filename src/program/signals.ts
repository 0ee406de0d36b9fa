import cluster from 'node:cluster';

import { EXIT, exit } from './exit.js';

/** What the process is asked for from outside. */
export interface Signals {
  /** Aborted on the first SIGTERM or SIGINT, and when the primary of a cluster disconnects. */
  readonly stop: AbortSignal;
  /** Calls `reload` on each SIGHUP from now on, and at once if there was one before. */
  onReload(reload: () => void): void;
}

/** Handles the signals to the process. A second SIGTERM or SIGINT ends it at once. */
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
  process.on('SIGHUP', () => onHangup());
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
