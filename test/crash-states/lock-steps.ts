import { basename } from 'node:path';

import type { System } from '../../dist/log/system.js';
import { acquireLock, claimPrefix } from '../../dist/log/lock.js';
import { systemError } from '../log/support.js';

/*
 * The steps of the real lock. What a process does next depends only on the results of its steps so far.
 * The code is therefore run once for each list of results, and its steps form a tree.
 */

/** What a process does next. Sockets have short names: `2-1` is the first one of the process 2. */
export type Step =
  | { readonly kind: 'bind' | 'listen' | 'chmod' | 'connect' | 'unlink'; readonly name: string }
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
  /** Where the process is after its step had a result; a promise until that is known. */
  after(result: Result): Position | Promise<Position>;
}

export type Mutate = (fs: System) => System;

let positions = 0;

/** A process that has done nothing yet. */
export function beginningOf(process: number, mutate?: Mutate): Promise<Position> {
  /** Its pauses, by the number of claims before them, which is all that it remembers. */
  const pauses = new Map<number, Position>();
  return positionAfter([], 0);

  async function positionAfter(results: readonly Result[], claims: number): Promise<Position> {
    const step = await nextStep(process, results, mutate);
    const known = step.kind === 'clock' ? pauses.get(claims) : undefined;
    if (known) return known;
    const next = new Map<string, Position>();
    const claimed = claims + Number(step.kind === 'bind');
    const position: Position = {
      number: ++positions,
      step,
      after(result) {
        const key = String(result);
        return (
          next.get(key) ??
          positionAfter([...results, result], claimed).then((after) => {
            next.set(key, after);
            return after;
          })
        );
      },
    };
    if (step.kind === 'clock') pauses.set(claims, position);
    return position;
  }
}

const INO = 7n;
const PREFIX = claimPrefix(INO);

/** Runs the code with the results that are known. Resolves to the step that follows them. */
function nextStep(
  process: number,
  results: readonly Result[],
  mutate: Mutate = (fs) => fs,
): Promise<Step> {
  return new Promise((resolve) => {
    let taken = 0;
    let claims = 0;
    let expire: () => void = () => undefined;

    /** Resolves to the result of a step; never if it is not known. */
    async function take(step: Step): Promise<Result> {
      if (taken === results.length) resolve(step);
      return results[taken++] ?? new Promise(() => undefined);
    }
    async function change(step: Step): Promise<void> {
      const code = await take(step);
      if (typeof code === 'string' && code !== '') throw systemError(code, step.kind);
    }
    /** A folder with sockets and a clock. */
    const fs = {
      open: async () => 0,
      close: async () => undefined,
      chmod: (path: string) => change({ kind: 'chmod', name: shortName(path) }),
      rename: (from: string, to: string) =>
        change({ kind: 'rename', name: shortName(from), to: shortName(to) }),
      unlink: (path: string) => change({ kind: 'unlink', name: shortName(path) }),
      connect: (path: string) => change({ kind: 'connect', name: shortName(path) }),
      readdir: async () =>
        ((await take({ kind: 'list' })) as string[]).map((name) => PREFIX + name),
      async listen(path: string) {
        await take({ kind: 'bind', name: shortName(path) });
        await take({ kind: 'listen', name: shortName(path) });
        return { close: () => void take({ kind: 'close' }) };
      },
      startTimer(onExpiry: () => void) {
        expire = onExpiry;
        return { refresh: () => undefined };
      },
      /** Time passes only while a process sleeps. */
      async sleep() {
        if ((await take({ kind: 'clock' })) === true) expire();
      },
      randomBytes: () => ({ toString: () => `${process}-${++claims}` }),
    };

    async function useLock(): Promise<void> {
      try {
        const lock = await acquireLock(
          mutate(fs as unknown as System),
          '/srv/data/plants.jsonl',
          INO,
        );
        await take({ kind: 'hold' });
        await lock.release();
      } catch {
        // Another process holds the lock, or a mutation makes an operation fail.
      }
      await take({ kind: 'end' });
    }
    void useLock();
  });
}

/** The name of a socket without what is the same for all. */
function shortName(path: string): string {
  return basename(path).slice(PREFIX.length);
}
