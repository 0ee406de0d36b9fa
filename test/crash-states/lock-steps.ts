import { basename } from 'node:path';

import type { System } from '../../dist/log/files.js';
import { acquireLock } from '../../dist/log/lock.js';
import { systemError } from '../log/support.js';

/*
 * The steps of the real lock. What a process does next depends only on the results of its steps so far.
 * The code is therefore run once for each list of results, and its steps form a tree.
 */

/** What a process does next. Sockets have short names: `2-1` is the first one of the process 2. */
export type Step =
  | { readonly kind: 'listen' | 'chmod' | 'connect' | 'unlink'; readonly name: string }
  | { readonly kind: 'rename'; readonly name: string; readonly to: string }
  /** Reads the names in the folder. */
  | { readonly kind: 'list' }
  /** Pauses, and finds out whether its time for attempts is over. */
  | { readonly kind: 'clock' }
  /** Closes its socket. */
  | { readonly kind: 'close' }
  /** Holds the lock until the step is over. */
  | { readonly kind: 'hold' }
  | { readonly kind: 'end' };

/** Empty, or the code of an error; the names in the folder; whether it is too late. */
export type Result = string | readonly string[] | boolean;

/** How far a process has come. */
export interface Position {
  /** Different for each position. */
  readonly number: number;
  readonly step: Step;
  /** Where the process is after its step had a result, if that is known. */
  after(result: Result): Position | undefined;
  /** Finds out the position after a result. */
  learn(result: Result): Promise<void>;
}

const INO = 7n;
const PREFIX = `.plant-store-${INO}-`;

function fullName(name: string): string {
  const [, process = '', nth = '', rest = ''] = /^(\d+)-(\d+)(.*)$/.exec(name) ?? [];
  return `${PREFIX}${randomPart(Number(process), Number(nth)).toString('hex')}${rest}`;
}

function shortName(path: string): string {
  const [, process = '', nth = '', rest = ''] =
    /^0{6}(..)0{6}(..)(.*)$/.exec(basename(path).slice(PREFIX.length)) ?? [];
  return `${parseInt(process, 16)}-${parseInt(nth, 16)}${rest}`;
}

/** The random part of the name of a process's nth claim. */
function randomPart(process: number, nth: number): Buffer {
  return Buffer.from([0, 0, 0, process, 0, 0, 0, nth]);
}

let positions = 0;

/** A process that has done nothing yet. */
export function beginningOf(process: number, mutate?: Mutate): Promise<Position> {
  /** Its pauses, by the number of claims before them, which is all that it remembers. */
  const pauses = new Map<number, Position>();
  return positionAfter([], 0);

  async function positionAfter(results: readonly Result[], listened: number): Promise<Position> {
    const step = await replay(process, results, mutate);
    const next = new Map<string, Position>();
    return {
      number: ++positions,
      step,
      after: (result) => next.get(String(result)),
      async learn(result) {
        const claims = listened + Number(step.kind === 'listen');
        const after = await positionAfter([...results, result], claims);
        const isPause = after.step.kind === 'clock';
        const known = isPause ? (pauses.get(claims) ?? after) : after;
        if (isPause) pauses.set(claims, known);
        next.set(String(result), known);
      },
    };
  }
}

export type Mutate = (fs: System) => System;

/** A run of the code with the results that are known. */
interface Replay {
  readonly process: number;
  /** The result of a step; `undefined` if it is not known. */
  take(step: Step): Result | undefined;
  /** How many claims it has made. */
  claims: number;
}

/** The step that follows the results. */
function replay(
  process: number,
  results: readonly Result[],
  mutate: Mutate = (fs) => fs,
): Promise<Step> {
  return new Promise((resolve) => {
    let taken = 0;
    const run: Replay = {
      process,
      take(step) {
        if (taken++ === results.length) resolve(step);
        return results[taken - 1];
      },
      claims: 0,
    };
    void useLock(run, mutate(simulatedFs(run)));
  });
}

async function useLock(run: Replay, fs: System): Promise<void> {
  try {
    const lock = await acquireLock(fs, '/srv/data/plants.jsonl', INO);
    await resultOf(run, { kind: 'hold' });
    await lock.release();
  } catch {
    // Another process holds the lock, or a mutation makes an operation fail.
  }
  await resultOf(run, { kind: 'end' });
}

/** Resolves to the result of a step; never if it is not known. */
async function resultOf(run: Replay, step: Step): Promise<Result> {
  return run.take(step) ?? new Promise(() => undefined);
}

/** A folder with sockets and a clock, as a process of a replay sees them. */
function simulatedFs(run: Replay): System {
  let expire: () => void = () => undefined;
  async function change(step: Step): Promise<void> {
    const code = await resultOf(run, step);
    if (code === 'ENOENT') throw systemError(code, step.kind);
  }
  const fs = {
    open: async () => ({ fd: 0, close: async () => undefined }),
    chmod: (path: string) => change({ kind: 'chmod', name: shortName(path) }),
    rename: (from: string, to: string) =>
      change({ kind: 'rename', name: shortName(from), to: shortName(to) }),
    unlink: (path: string) => change({ kind: 'unlink', name: shortName(path) }),
    async readdir() {
      const names = await resultOf(run, { kind: 'list' });
      return (names as string[]).map(fullName);
    },
    async listen(path: string) {
      await resultOf(run, { kind: 'listen', name: shortName(path) });
      return { close: () => void run.take({ kind: 'close' }) };
    },
    async connect(path: string) {
      const code = await resultOf(run, { kind: 'connect', name: shortName(path) });
      if (code !== '') throw systemError(String(code), 'connect');
    },
    startTimer(onExpiry: () => void) {
      expire = onExpiry;
      return () => undefined;
    },
    /** Time passes only while a process sleeps. */
    async sleep() {
      if ((await resultOf(run, { kind: 'clock' })) === true) expire();
    },
    randomBytes: () => randomPart(run.process, ++run.claims),
  };
  return fs as unknown as System;
}
