import { beginningOf, type Mutate, type Position, type Result } from './lock-steps.js';

export interface LockOptions {
  readonly processes: number;
  /** How often each of them looks at the clock before its time is over. */
  readonly looks: number;
  /** Gives the lock another file system, to break it. */
  readonly mutate?: Mutate;
}

export type Wrong = 'two hold the lock' | 'nobody can take the lock' | 'a dead claim is left';

export interface LockExploration {
  readonly states: number;
  /** What went wrong, and the steps of all processes that first led there. */
  readonly violations: ReadonlyMap<Wrong, string>;
}

/** A process that has neither ended nor been killed. */
interface Contender {
  readonly position: Position;
  /** In the middle of a step: the socket that it has bound, or the names that it has listed. */
  readonly halfway?: string;
  /** How often it may look at the clock before it is late. */
  readonly looks: number;
}

interface Socket {
  readonly owner: number;
  readonly listens: boolean;
}

/** All processes and their folder, at one moment. */
interface LockState {
  /** The processes that want the lock; `undefined` once they have ended or were killed. */
  readonly contenders: readonly (Contender | undefined)[];
  /** The names in the folder, each with the name under which its socket was bound. */
  readonly folder: ReadonlyMap<string, string>;
  /** The sockets that are open. */
  readonly sockets: ReadonlyMap<string, Socket>;
  /** The state from which it was reached. */
  readonly from?: LockState;
}

/**
 * Lets processes acquire the lock at once, in every order of their steps, with each of them stopped or
 * killed at any moment. If all of them are killed in any state, the next process must get the lock.
 */
export async function exploreLock(options: LockOptions): Promise<LockExploration> {
  const { processes, looks, mutate } = options;
  const numbers = Array.from({ length: processes }, (_, n) => n + 1);
  const positions = await Promise.all(numbers.map((number) => beginningOf(number, mutate)));
  const violations = new Map<Wrong, string>();
  const seen = new Set<string>();
  const foldersSeen = new Set<string>();
  const states = [startOf(positions, looks)];

  function note(wrong: Wrong | undefined, state: LockState): void {
    if (wrong && !violations.has(wrong)) violations.set(wrong, trailOf(state));
  }

  for (let from; (from = states.pop());) {
    const next = nextStates(from);
    for (const state of Array.isArray(next) ? next : await next) {
      const key = keyOf(state);
      if (seen.has(key)) continue;
      seen.add(key);
      states.push(state);
      if (holdersIn(state) > 1) note('two hold the lock', state);
      const left = [...state.folder.keys()].sort();
      if (foldersSeen.has(left.join(' '))) continue;
      foldersSeen.add(left.join(' '));
      note(await succeed(await beginningOf(processes + 1, mutate), left), state);
    }
  }
  return { states: seen.size, violations };
}

/** What goes wrong when a process takes and releases the lock among dead claims. */
async function succeed(position: Position, left: readonly string[]): Promise<Wrong | undefined> {
  let state = startOf([position], 2, left);
  let holds = false;
  while (state.contenders[0]) {
    holds ||= holdersIn(state) > 0;
    // In the first state, the process takes its step; in others, it is late or killed.
    [state = state] = await nextStates(state);
  }
  if (!holds) return 'nobody can take the lock';
  return state.folder.size > 0 ? 'a dead claim is left' : undefined;
}

/** The state in which processes start, among the sockets of dead processes. */
function startOf(
  positions: readonly Position[],
  looks: number,
  left: readonly string[] = [],
): LockState {
  return {
    contenders: positions.map((position) => ({ position, looks })),
    folder: new Map(left.map((name) => [name, name])),
    sockets: new Map(),
  };
}

/** A text that is the same for equal states. */
function keyOf({ contenders, folder, sockets }: LockState): string {
  let key = '';
  for (const each of contenders)
    key += each ? `${each.position.number} ${each.halfway ?? ''} ${each.looks};` : ';';
  for (const name of [...folder.keys()].sort()) key += `${name};`;
  for (const [name, { listens }] of sockets) if (!listens) key += name;
  return key;
}

function trailOf({ contenders, from }: LockState): string {
  const steps = contenders.map((each) => JSON.stringify(each?.position.step ?? 'ended'));
  return `${from ? trailOf(from) : ''}${steps.join(' ')}\n`;
}

function holdersIn({ contenders }: LockState): number {
  return contenders.filter((each) => each?.position.step.kind === 'hold').length;
}

/**
 * Every state that may come next: one process takes a step, or is killed. A process that is stopped is
 * one that takes no step. If a process can take a step that no other process can observe, only that step
 * is taken: its place in the order makes no difference.
 */
function nextStates(from: LockState): LockState[] | Promise<LockState[]> {
  const unknown: Promise<void>[] = [];
  const { contenders } = from;
  const alone = contenders.findIndex((each) => each && isUnnoticed(from, each));
  const next =
    alone === -1
      ? contenders.flatMap((each, n) =>
          each ? [...stepsOf(from, n, unknown), ended(from, n)] : [],
        )
      : stepsOf(from, alone, unknown);
  return unknown.length === 0 ? next : Promise.all(unknown).then(() => nextStates(from));
}

/** Whether a step has the same result whenever it is taken, and changes nothing for others. */
function isUnnoticed({ folder }: LockState, { position: { step } }: Contender): boolean {
  if (step.kind === 'clock') return true;
  // A removed name never returns.
  return (step.kind === 'connect' || step.kind === 'unlink') && !folder.has(step.name);
}

/** The states after a process has taken its step, one for each result that it may have, if they are known. */
function stepsOf(from: LockState, n: number, unknown: Promise<void>[]): LockState[] {
  const contender = from.contenders[n];
  if (!contender) return [];
  const { position, halfway, looks } = contender;
  const { step } = position;
  const { folder, sockets } = from;
  type Changes = Partial<Pick<LockState, 'folder' | 'sockets'>>;

  function done(result: Result, changes: Changes = {}, left = looks): LockState[] {
    const after = position.after(result);
    if (after instanceof Promise) {
      unknown.push(after);
      return [];
    }
    if (after.step.kind === 'end') return [ended({ ...from, ...changes, from }, n)];
    const contenders = from.contenders.with(n, { position: after, looks: left });
    return [{ ...from, ...changes, contenders, from }];
  }
  function half(what: string, changes: Changes = {}): LockState[] {
    const contenders = from.contenders.with(n, { position, looks, halfway: what });
    return [{ ...from, ...changes, contenders, from }];
  }

  switch (step.kind) {
    case 'listen': {
      const { name } = step;
      const listens = halfway !== undefined;
      const opened = new Map(sockets).set(name, { owner: n, listens });
      if (listens) return done('', { sockets: opened });
      return half(name, { folder: new Map(folder).set(name, name), sockets: opened });
    }
    case 'chmod':
      return done(folder.has(step.name) ? '' : 'ENOENT');
    case 'rename': {
      const socket = folder.get(step.name);
      if (socket === undefined) return done('ENOENT');
      return done('', { folder: without(folder, step.name).set(step.to, socket) });
    }
    case 'unlink':
      if (!folder.has(step.name)) return done('ENOENT');
      return done('', { folder: without(folder, step.name) });
    case 'list': {
      const names = [...folder.keys()].sort();
      if (halfway === undefined) return half(names.join(' '));
      return listings(halfway.split(' '), names).flatMap((each) => done(each));
    }
    case 'connect': {
      const socket = folder.get(step.name);
      if (socket === undefined) return done('ENOENT');
      return done(sockets.get(socket)?.listens ? '' : 'ECONNREFUSED');
    }
    case 'clock':
      return [...(looks > 0 ? done(false, {}, looks - 1) : []), ...done(true, {}, 0)];
    case 'close':
      return done('', { sockets: withoutThoseOf(sockets, n) });
    case 'hold':
      return done('');
    case 'end':
      return [];
  }
}

/** The possible lists of a folder: a name that comes or goes meanwhile is listed or not. */
function listings(before: readonly string[], after: readonly string[]): string[][] {
  let all: string[][] = [[]];
  for (const name of [...new Set([...before, ...after])].filter(Boolean).sort()) {
    const isStable = before.includes(name) && after.includes(name);
    const withName = all.map((each) => [...each, name]);
    all = isStable ? withName : [...all, ...withName];
  }
  return all;
}

/** The state once a process has ended or was killed. */
function ended(from: LockState, n: number): LockState {
  const contenders = from.contenders.with(n, undefined);
  return { ...from, contenders, sockets: withoutThoseOf(from.sockets, n), from };
}

function withoutThoseOf(sockets: LockState['sockets'], n: number): LockState['sockets'] {
  return new Map([...sockets].filter(([, { owner }]) => owner !== n));
}

function without(folder: LockState['folder'], name: string): Map<string, string> {
  const rest = new Map(folder);
  rest.delete(name);
  return rest;
}
