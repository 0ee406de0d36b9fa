import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

import { nodeFileSystem, type FileSystem } from '../files.js';
import { ask, listen, type ListeningSocket } from './socket.js';

/** What the log needs of the system: files, sockets, a clock and random numbers. Tests simulate all of it. */
export interface System extends FileSystem {
  listen(path: string, answer: () => string): Promise<ListeningSocket>;
  ask(path: string, timeoutMs: number): Promise<string>;
  /** Milliseconds on a clock that never goes back. */
  readonly now: () => number;
  readonly sleep: (ms: number) => Promise<unknown>;
  /** Starts a timer, and returns a function that stops it. */
  startTimer(onExpiry: () => void, ms: number): () => void;
  readonly randomBytes: (size: number) => Buffer;
}

export const nodeSystem: System = {
  ...nodeFileSystem,
  listen,
  ask,
  now: () => performance.now(),
  sleep,
  startTimer(onExpiry, ms) {
    const timer = setTimeout(onExpiry, ms);
    return () => clearTimeout(timer);
  },
  randomBytes,
};
