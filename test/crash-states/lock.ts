import { basename } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';

import { acquireLock, claimPrefix } from '../../dist/log/lock.js';
import type { System } from '../../dist/log/system.js';
import { systemError } from '../log/support.js';

export interface LockOptions {
  readonly processes: number;
  /** How often each process may look at the clock before its time is over. */
  readonly looks: number;
}

type Wrong = 'two hold the lock' | 'nobody can take the lock' | 'a dead claim is left';

/** What may happen next. */
interface Event {
  readonly about: string;
  /**
   * Whether no other process can observe the event, and the result is the same whenever it happens.
   */
  readonly isUnnoticed: boolean;
  readonly happen: () => void;
}

/**
 * The possible results of an operation, by name. Each function carries the operation out, and
 * returns or throws the result.
 */
type Results<R> = Readonly<Record<string, () => R>>;

/** A process that runs the real code, and waits at each of its operations. */
interface Contender {
  /**
   * The possible results of the current operation, one of which happens next. Empty if the process
   * has ended or was killed.
   */
  results: () => readonly Event[];
  /** Everything that decides what the process does next. */
  history: string;
  holds: boolean;
  readonly kill: () => void;
}

/** A socket, which keeps its owner when it is renamed. */
interface Socket {
  listens: boolean;
}

const INO = 7n;
const PREFIX = claimPrefix(INO);

/** Claims have short names: `2-1` is the first claim of process 2. */
const shortName = (path: string): string => basename(path).slice(PREFIX.length);

/**
 * Lets processes with these numbers acquire the lock in a folder. `left` are the names of sockets
 * that dead processes have left there.
 */
function begin(numbers: readonly number[], { looks }: LockOptions, left: readonly string[]) {
  const folder = new Map<string, Socket>(left.map((name) => [name, { listens: false }]));
  const names = (): string[] => [...folder.keys()].sort();

  function start(number: number): Contender {
    const sockets: Socket[] = [];
    let [claims, looksLeft] = [0, looks];
    let expire = (): void => undefined;
    const end = (): void => {
      for (const socket of sockets) socket.listens = false;
      Object.assign(contender, { history: 'ended', holds: false, results: () => [] });
    };
    const contender: Contender = { history: '', holds: false, results: () => [], kill: end };

    function wait<R>(about: string, results: () => Results<R>): Promise<R> {
      return new Promise((resolve, reject) => {
        const settle = (name: string, result: () => R): void => {
          contender.results = () => [];
          contender.history += `${name};`;
          try {
            resolve(result());
          } catch (error) {
            reject(error);
          }
        };
        contender.results = () =>
          Object.entries(results()).map(([name, result]) => ({
            about: `${number}: ${about} ${name}`,
            // A removed name never returns.
            isUnnoticed: about === 'sleep' || name === 'ENOENT',
            happen: () => settle(name, result),
          }));
      });
    }
    /** An operation on a name in the folder. */
    function act(kind: string, path: string, done: (name: string, socket: Socket) => unknown) {
      const name = shortName(path);
      return wait(`${kind} ${name}`, () => {
        const socket = folder.get(name);
        const fail = (code: string) => () => {
          throw systemError(code, kind);
        };
        if (!socket) return { ENOENT: fail('ENOENT') };
        if (kind !== 'connect') return { '': () => done(name, socket) };
        if (!socket.listens) return { ECONNREFUSED: fail('ECONNREFUSED') };
        // The queue of connections may be full.
        return { '': () => done(name, socket), EAGAIN: fail('EAGAIN') };
      });
    }

    const fs = {
      open: async () => 0,
      close: async () => undefined,
      chmod: (path: string) => act('chmod', path, () => undefined),
      connect: (path: string) => act('connect', path, () => undefined),
      unlink: (path: string) => act('unlink', path, (name) => folder.delete(name)),
      rename: (from: string, to: string) =>
        act('rename', from, (name, socket) => {
          folder.delete(name);
          folder.set(shortName(to), socket);
        }),
      /** A name that is added or removed during the call may be listed or not. */
      async readdir() {
        const before = await wait('list', () => ({ '': names }));
        return wait('listed', () => {
          const after = names();
          const stable = after.filter((name) => before.includes(name));
          const all = [...new Set([...before, ...after])];
          const lists = [stable, all].map((list) => list.map((name) => PREFIX + name));
          return Object.fromEntries(lists.map((list) => [list.join(), () => list]));
        });
      },
      async listen(path: string) {
        const socket = { listens: false };
        sockets.push(socket);
        await wait('bind', () => ({ '': () => folder.set(shortName(path), socket) }));
        await wait('listen', () => ({ '': () => (socket.listens = true) }));
        return { close: () => (socket.listens = false) };
      },
      startTimer(onExpiry: () => void) {
        expire = onExpiry;
      },
      /**
       * Time passes only while a process sleeps. After that, its history is only the number of its
       * claims and of the looks that it has left.
       */
      async sleep() {
        await wait('sleep', () => ({
          'for too long': expire,
          ...(looksLeft > 0 && { '': () => looksLeft-- }),
        }));
        contender.history = `${claims} ${looksLeft} `;
      },
      randomBytes: () => ({ toString: () => `${number}-${++claims}` }),
    } as unknown as System;

    async function useLock(): Promise<void> {
      const lock = await acquireLock(fs, '/srv/data/plants.jsonl', INO);
      contender.holds = true;
      await wait('hold', () => ({ '': () => (contender.holds = false) }));
      await lock.release();
    }
    // Rejects if another process holds the lock.
    useLock().then(end, end);
    return contender;
  }

  const contenders = numbers.map(start);
  return {
    names,
    holders: () => contenders.filter(({ holds }) => holds).length,
    /** A text that is the same for equal states. */
    key: () => [...contenders.map(({ history }) => history), ...names()].join('|'),
    /**
     * The results of operations come first, and kills last. A stopped process is a process of which
     * no result is chosen. If no process can notice a result, only this result is returned, because
     * its place in the order makes no difference.
     */
    events: (): readonly Event[] => {
      const events = contenders.map(({ results }) => results());
      const unnoticed = events.find(([first]) => first?.isUnnoticed);
      const kills = contenders.flatMap(({ history, kill }, n) =>
        history === 'ended'
          ? []
          : [{ about: `${n + 1}: killed`, isUnnoticed: false, happen: kill }],
      );
      return unnoticed ?? [...events.flat(), ...kills];
    },
  };
}

/** What goes wrong when one more process takes and releases the lock among dead claims. */
async function takeOver(options: LockOptions, left: readonly string[]): Promise<Wrong | undefined> {
  const run = begin([options.processes + 1], options, left);
  let holds = false;
  for (;;) {
    await nextTurn();
    holds ||= run.holders() > 0;
    const [event] = run.events();
    if (!event) break;
    event.happen();
  }
  if (!holds) return 'nobody can take the lock';
  return run.names().length > 0 ? 'a dead claim is left' : undefined;
}

/**
 * Lets processes acquire the lock at once, in every order of their operations, with each of them
 * stopped or killed at any moment. If all of them are killed in any state, the next process must
 * get the lock. Each order is run from the beginning until it reaches a state that was seen before.
 * Resolves to what went wrong, each with the first order that leads to it.
 */
export async function exploreLock(options: LockOptions): Promise<ReadonlyMap<Wrong, string>> {
  const numbers = Array.from({ length: options.processes }, (_, n) => n + 1);
  const found = new Map<Wrong, string>();
  const seen = new Set<string>();
  const orders: (readonly number[])[] = [[]];
  for (let order; (order = orders.pop());) {
    const run = begin(numbers, options, []);
    const trail: string[] = [];
    for (let step = 0; ; step++) {
      await nextTurn();
      const events = run.events();
      let chosen = order[step];
      if (chosen === undefined) {
        if (seen.has(run.key())) break;
        seen.add(run.key());
        const left = run.names();
        const wrongs: (Wrong | undefined)[] = [run.holders() > 1 ? 'two hold the lock' : undefined];
        if (!seen.has(`left ${left.join()}`)) wrongs.push(await takeOver(options, left));
        seen.add(`left ${left.join()}`);
        for (const wrong of wrongs)
          if (wrong && !found.has(wrong)) found.set(wrong, trail.join('\n'));
        const before = Array.from({ length: step }, (_, n) => order[n] ?? 0);
        for (let other = 1; other < events.length; other++) orders.push([...before, other]);
        chosen = 0;
      }
      const event = events[chosen];
      if (!event) break;
      trail.push(event.about);
      event.happen();
    }
  }
  return found;
}
