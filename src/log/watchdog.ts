import { AsyncResource } from 'node:async_hooks';

import type { PlantStoreError } from '../store.js';
import { storeErrors } from './errors.js';
import type { System } from './system.js';

/**
 * How long the disk may take for an operation, in milliseconds. One that takes longer hangs: a busy disk
 * needs less, and many clients wait no longer than 30 s.
 */
export const HANG_MS = 10_000;

/** Watches operations that follow one another. */
export interface Watchdog {
  /** To be called when an operation begins. */
  start(): void;
  /** To be called when it has returned. */
  stop(): void;
}

export interface WatchdogOptions {
  readonly system: System;
  readonly path: string;
  /** The operation in the message: `a write`. */
  readonly operation: string;
}

/**
 * Calls `onHang` once for each operation that hangs, while it does. The operation goes on: a system call
 * cannot be cancelled.
 */
export function createWatchdog(
  { system, path, operation }: WatchdogOptions,
  onHang: (error: PlantStoreError) => void,
): Watchdog {
  /** The number of the last operation. */
  let last = 0;
  let isRunning = false;
  // One timer for all operations. Bound to the asynchronous context that opened the log.
  const onExpiry = AsyncResource.bind(() => {
    const late = last;
    // If the event loop was blocked, the operation may have returned, and its result not been read yet.
    setImmediate(() => {
      if (isRunning && late === last) onHang(storeErrors.hanging(path, operation, HANG_MS));
    });
  });
  const timer = system.startTimer(onExpiry, HANG_MS);
  return {
    start() {
      last++;
      isRunning = true;
      timer.refresh();
    },
    stop() {
      isRunning = false;
    },
  };
}
