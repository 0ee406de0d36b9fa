import { fail } from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import crypto from 'node:crypto';
import { EventEmitter } from 'node:events';
import { syncBuiltinESMExports } from 'node:module';
import net from 'node:net';
import { basename } from 'node:path';
import { Readable } from 'node:stream';
import timers from 'node:timers/promises';

import type { FileSystem } from '../../dist/log/file.js';
import { acquireLock } from '../../dist/log/lock.js';
import { systemError } from '../log/support.js';

/*
 * The steps of the real lock. What a process does next depends on nothing but the results of its
 * steps so far, so the code is run once for each list of results, and its steps form a tree.
 */

/** What a process does next. Sockets have short names: `2-1` is the first one of the process 2. */
export type Step =
  | { readonly kind: 'listen' | 'chmod' | 'connect' | 'unlink'; readonly name: string }
  | { readonly kind: 'rename'; readonly name: string; readonly to: string }
  /** Reads the names in the folder. */
  | { readonly kind: 'list' }
  /** Reads the clock to find out whether its time for attempts is over. */
  | { readonly kind: 'clock' }
  /** Closes its socket. */
  | { readonly kind: 'close' }
  /** Holds the lock until the step is over. */
  | { readonly kind: 'hold' }
  | { readonly kind: 'end' };

/** What a socket answered, or the code of an error; the names in the folder; whether it is late. */
export type Result = string | readonly string[] | boolean;

/** How far a process has come. */
export interface Position {
  /** Different for each position. */
  readonly number: number;
  readonly step: Step;
  /** What the process answers to a connection meanwhile. */
  readonly answer: string;
  /** Where the process is after its step had a result, if that is known. */
  after(result: Result): Position | undefined;
  /** Finds out the position after a result. */
  learn(result: Result): Promise<void>;
}

const INO = 7n;
const PREFIX = `.plant-store-${INO}-`;

function fullName(name: string): string {
  const [, rank = '', rest = ''] = /^(\d)(.*)$/.exec(name) ?? [];
  return `${PREFIX}${rankOf(Number(rank)).toString('hex')}${rest}`;
}

function shortName(path: string): string {
  return basename(path)
    .slice(PREFIX.length + 1)
    .replace(/^(\d)[^-]*/, '$1');
}

/** The random part of the names of a process. That of the lower number is the lower one. */
function rankOf(number: number): Buffer {
  return Buffer.alloc(8, number);
}

let positions = 0;

/** A process that has done nothing yet. */
export function beginningOf(process: number, mutate?: Mutate): Promise<Position> {
  /** Where it begins its attempts: of the earlier ones, it remembers only how many they were. */
  const attempts = new Map<number, Position>();
  const isOwn = (name: string): boolean => name.startsWith(`${process}-`);
  return positionAfter([], 0);

  async function positionAfter(results: readonly Result[], listened: number): Promise<Position> {
    const { step, answer } = await replay(process, results, mutate);
    const next = new Map<string, Position>();
    return {
      number: ++positions,
      step,
      answer,
      after: (result) => next.get(String(result)),
      async learn(result) {
        const after = await positionAfter(
          [...results, result],
          listened + Number(step.kind === 'listen'),
        );
        const isOver = step.kind === 'close' || (step.kind === 'unlink' && isOwn(step.name));
        const begins = isOver && after.step.kind === 'clock';
        const known = begins ? (attempts.get(listened) ?? after) : after;
        if (begins) attempts.set(listened, known);
        next.set(String(result), known);
      },
    };
  }
}

export type Mutate = (fs: FileSystem) => FileSystem;

/** A run of the code with the results that are known. */
interface Replay {
  readonly process: number;
  /** The result of a step; `undefined` if it is not known. */
  take(step: Step): Result | undefined;
  onConnection: OnConnection;
  looks: number;
}

type OnConnection = (socket: { on(): { end(text: string): void } }) => void;

const replays = new AsyncLocalStorage<Replay>();

function currentReplay(): Replay {
  return replays.getStore() ?? fail('no replay is running');
}

/** The step that follows the results. */
function replay(
  process: number,
  results: readonly Result[],
  mutate: Mutate = (fs) => fs,
): Promise<Pick<Position, 'step' | 'answer'>> {
  return new Promise((resolve) => {
    let taken = 0;
    const run: Replay = {
      process,
      take(step) {
        if (taken++ === results.length) resolve({ step, answer: answerOf(run) });
        return results[taken - 1];
      },
      onConnection: () => undefined,
      looks: 0,
    };
    replays.run(run, () => void useLock(mutate(simulatedFs)));
  });
}

async function useLock(fs: FileSystem): Promise<void> {
  try {
    const lock = await acquireLock(fs, '/srv/data/plants.jsonl', INO);
    await resultOf({ kind: 'hold' });
    await lock.release();
  } catch {
    // Another process holds the lock, or a mutation makes an operation fail.
  }
  await resultOf({ kind: 'end' });
}

/** Resolves to the result of a step; never if it is not known. */
async function resultOf(step: Step): Promise<Result> {
  return currentReplay().take(step) ?? new Promise(() => undefined);
}

async function change(step: Step): Promise<void> {
  const code = await resultOf(step);
  if (code === 'ENOENT') throw systemError(code, step.kind);
}

function answerOf({ onConnection }: Replay): string {
  let answer = '';
  onConnection({ on: () => ({ end: (text) => (answer = text) }) });
  return answer;
}

const simulatedFs = {
  open: async () => ({ fd: 0, close: async () => undefined }),
  chmod: (path: string) => change({ kind: 'chmod', name: shortName(path) }),
  rename: (from: string, to: string) =>
    change({ kind: 'rename', name: shortName(from), to: shortName(to) }),
  unlink: (path: string) => change({ kind: 'unlink', name: shortName(path) }),
  async readdir() {
    const names = await resultOf({ kind: 'list' });
    return (names as string[]).map(fullName);
  },
} as unknown as FileSystem;

class SimulatedServer extends EventEmitter {
  constructor(onConnection: OnConnection) {
    super();
    currentReplay().onConnection = onConnection;
  }
  unref(): this {
    return this;
  }
  listen({ path }: { readonly path: string }): void {
    const listening = resultOf({ kind: 'listen', name: shortName(path) });
    void listening.then(() => this.emit('listening'));
  }
  close(): void {
    currentReplay().take({ kind: 'close' });
  }
}

function connect(path: string): Readable {
  const socket = new Readable({ read: () => undefined });
  void resultOf({ kind: 'connect', name: shortName(path) }).then((result) => {
    if (result === 'ENOENT' || result === 'ECONNREFUSED')
      return socket.destroy(systemError(result, 'connect'));
    socket.push(result);
    return socket.push(null);
  });
  return Object.assign(socket, { setTimeout: () => undefined });
}

const realNow = performance.now.bind(performance);

/** Time passes only when a process looks at the clock. Its first look gives the deadline. */
function now(): number {
  const run = replays.getStore();
  if (!run) return realNow();
  return run.looks++ > 0 && run.take({ kind: 'clock' }) === true ? Infinity : 0;
}

/** Puts the lock on a simulated folder, sockets and clock, for the rest of this process. */
export function simulateLock(): void {
  const createServer = (onConnection: OnConnection): EventEmitter =>
    new SimulatedServer(onConnection);
  Object.assign(net, { createServer, connect });
  Object.assign(timers, { setTimeout: async () => undefined });
  Object.assign(crypto, { randomBytes: () => rankOf(currentReplay().process) });
  syncBuiltinESMExports();
  performance.now = now;
}
