import type { Position, Result } from './lock-steps.js';

/** A process that has neither exited nor been killed. */
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
export interface LockState {
  /** The processes that want the lock; `undefined` once they have ended or were killed. */
  readonly contenders: readonly (Contender | undefined)[];
  /** The names in the folder, each with the name under which its socket was bound. */
  readonly folder: ReadonlyMap<string, string>;
  /** The sockets that are open. */
  readonly sockets: ReadonlyMap<string, Socket>;
}

/** The state in which processes start, among the sockets of dead processes. */
export function startOf(
  positions: readonly Position[],
  looks: number,
  left: Iterable<string> = [],
): LockState {
  return {
    contenders: positions.map((position) => ({ position, looks })),
    folder: new Map([...left].map((name) => [name, name])),
    sockets: new Map(),
  };
}

/** A text that is the same for equal states. */
export function keyOf({ contenders, folder, sockets }: LockState): string {
  let key = '';
  for (const each of contenders)
    key += each ? `${each.position.number} ${each.halfway ?? ''} ${each.looks};` : ';';
  for (const name of [...folder.keys()].sort()) key += `${name};`;
  for (const [name, { listens }] of sockets) if (!listens) key += name;
  return key;
}

export function holdersIn({ contenders }: LockState): number {
  return contenders.filter((each) => each?.position.step.kind === 'hold').length;
}

/**
 * Every state that may come next: one process takes a step, or is killed. A process that is stopped is
 * one that takes no step. If a process can take a step that no other process can observe, only that step
 * is taken: its place in the order makes no difference.
 */
export function nextStates(
  state: LockState,
  options: StepOptions,
): LockState[] | Promise<LockState[]> {
  const unknown: Promise<void>[] = [];
  const learn: Learn = (position, result) => unknown.push(position.learn(result));
  const alone = state.contenders.findIndex((each) => each && isUnnoticed(state, each));
  const next =
    alone === -1
      ? state.contenders.flatMap((each, n) =>
          each ? [...stepsOf(state, n, options, learn), ended(state, n)] : [],
        )
      : stepsOf(state, alone, options, learn);
  if (unknown.length === 0) return next;
  return Promise.all(unknown).then(() => nextStates(state, options));
}

export interface StepOptions {
  /** Whether a folder is read in one step; otherwise names can come and go meanwhile. */
  readonly listsAtOnce: boolean;
}

type Learn = (position: Position, result: Result) => void;

/** Whether a step has the same result whenever it is taken, and changes nothing for others. */
function isUnnoticed({ folder }: LockState, { position: { step } }: Contender): boolean {
  if (step.kind === 'clock') return true;
  // A removed name never returns.
  return (step.kind === 'connect' || step.kind === 'unlink') && !folder.has(step.name);
}

function stepsOf(
  state: LockState,
  n: number,
  { listsAtOnce }: StepOptions,
  learn: Learn,
): LockState[] {
  const contender = state.contenders[n];
  if (!contender) return [];
  const { position, halfway, looks } = contender;
  const { step } = position;
  const { folder, sockets } = state;
  type Changes = Partial<Pick<LockState, 'folder' | 'sockets'>>;

  function done(result: Result, changes: Changes = {}, looksLeft = looks): LockState[] {
    const after = position.after(result);
    if (!after) {
      learn(position, result);
      return [];
    }
    if (after.step.kind === 'end') return [ended({ ...state, ...changes }, n)];
    const contenders = state.contenders.with(n, { position: after, looks: looksLeft });
    return [{ ...state, ...changes, contenders }];
  }
  function half(socket: string, changes: Changes = {}): LockState[] {
    const contenders = state.contenders.with(n, { position, looks, halfway: socket });
    return [{ ...state, ...changes, contenders }];
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
      if (listsAtOnce) return done(names);
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
  const names = [...new Set([...before, ...after])].filter(Boolean).sort();
  let all: string[][] = [[]];
  for (const name of names) {
    const isStable = before.includes(name) && after.includes(name);
    const withName = all.map((each) => [...each, name]);
    all = isStable ? withName : [...all, ...withName];
  }
  return all;
}

/** The state once a process has ended or was killed. */
function ended(state: LockState, n: number): LockState {
  const contenders = state.contenders.with(n, undefined);
  return { ...state, contenders, sockets: withoutThoseOf(state.sockets, n) };
}

function withoutThoseOf(sockets: LockState['sockets'], n: number): LockState['sockets'] {
  return new Map([...sockets].filter(([, { owner }]) => owner !== n));
}

function without(folder: LockState['folder'], name: string): Map<string, string> {
  const rest = new Map(folder);
  rest.delete(name);
  return rest;
}
