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
  /** Reads the clock to find out whether its time for attempts is over. */
  | { readonly kind: 'clock' }
  /** Closes its socket. */
  | { readonly kind: 'close' }
  /** Holds the lock until the step is over. */
  | { readonly kind: 'hold' }
  | { readonly kind: 'end' };

/** The answer of a socket or the code of an error; the names in the folder; whether it is too late. */
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

/** The random part of the names of a process: the lower its number, the lower its names. */
function rankOf(number: number): Buffer {
  return Buffer.alloc(8, number);
}

let positions = 0;

/** A process that has done nothing yet. */
export function beginningOf(process: number, mutate?: Mutate): Promise<Position> {
  /** The beginnings of its attempts, by the number of earlier ones, which is all that it remembers. */
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

export type Mutate = (fs: System) => System;

/** A run of the code with the results that are known. */
interface Replay {
  readonly process: number;
  /** The result of a step; `undefined` if it is not known. */
  take(step: Step): Result | undefined;
  /** What the process answers to a connection. */
  answer: () => string;
  /** How often it has looked at the clock. */
  looks: number;
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
        if (taken++ === results.length) resolve({ step, answer: run.answer() });
        return results[taken - 1];
      },
      answer: () => '',
      looks: 0,
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
    async listen(path: string, answer: () => string) {
      run.answer = answer;
      await resultOf(run, { kind: 'listen', name: shortName(path) });
      return { close: () => void run.take({ kind: 'close' }) };
    },
    async ask(path: string) {
      const result = await resultOf(run, { kind: 'connect', name: shortName(path) });
      if (result === 'ENOENT' || result === 'ECONNREFUSED') throw systemError(result, 'connect');
      return result;
    },
    /** Time passes only when a process looks at the clock. Its first look gives the deadline. */
    now: () => (run.looks++ > 0 && run.take({ kind: 'clock' }) === true ? Infinity : 0),
    sleep: async () => undefined,
    randomBytes: () => rankOf(run.process),
  };
  return fs as unknown as System;
}
