import { beginningOf, type Mutate, type Position, type Result } from './lock-steps.js';

export interface LockOptions {
  readonly processes: number;
  /** How often each of them looks at the clock before its time is over. */
  readonly looks: number;
  /** Gives the lock another file system, to break it. */
  readonly mutate?: Mutate;
}

export type Wrong = 'two hold the lock' | 'nobody can take the lock' | 'a dead claim is left';

/** A process that has neither ended nor been killed. */
interface Contender {
  readonly position: Position;
  /** The names in the folder when it began to list them. */
  readonly listed?: readonly string[];
  /** How often it may look at the clock before it is late. */
  readonly looks: number;
}

/** All processes and their folder, at one moment. */
interface LockState {
  /** The processes that want the lock; `undefined` once they have ended or were killed. */
  readonly contenders: readonly (Contender | undefined)[];
  /** The names in the folder. */
  readonly folder: ReadonlySet<string>;
  /** The sockets that are open, and whether they listen. */
  readonly sockets: ReadonlyMap<string, boolean>;
  /** The state from which it was reached. */
  readonly from?: LockState;
}

/**
 * Lets processes acquire the lock at once, in every order of their steps, with each of them stopped or
 * killed at any moment. If all of them are killed in any state, the next process must get the lock.
 */
export async function exploreLock(options: LockOptions): Promise<ReadonlyMap<Wrong, string>> {
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
    // Not awaited if it is known already: there are hundreds of thousands of states.
    for (const state of Array.isArray(next) ? next : await next) {
      const key = keyOf(state);
      if (seen.has(key)) continue;
      seen.add(key);
      states.push(state);
      if (holdersIn(state) > 1) note('two hold the lock', state);
      const left = namesIn(state);
      if (foldersSeen.has(left.join())) continue;
      foldersSeen.add(left.join());
      note(await succeed(await beginningOf(processes + 1, mutate), left), state);
    }
  }
  return violations;
}

/** What goes wrong when a process takes and releases the lock among dead claims. */
async function succeed(position: Position, left: readonly string[]): Promise<Wrong | undefined> {
  let state = startOf([position], 2, left);
  let holds = false;
  while (state.contenders[0]) {
    holds ||= holdersIn(state) > 0;
    // In the first state, the process takes its step; in others, it is late or killed.
    const [next] = await nextStates(state);
    if (!next) break;
    state = next;
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
  const contenders = positions.map((position) => ({ position, looks }));
  return { contenders, folder: new Set(left), sockets: new Map() };
}

function namesIn({ folder }: LockState): string[] {
  return [...folder].sort();
}

/** A text that is the same for equal states. */
function keyOf(state: LockState): string {
  let key = namesIn(state).join();
  for (const each of state.contenders)
    key += each ? `;${each.position.number} ${each.looks} ${each.listed?.join() ?? ''}` : ';';
  for (const [name, listens] of state.sockets) if (!listens) key += `;${name}`;
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
  const { contenders } = from;
  const unknown: Promise<Position>[] = [];
  const alone = contenders.findIndex((each) => each && isUnnoticed(from, each));
  const next =
    alone === -1
      ? contenders.flatMap((each, n) =>
          each ? [...statesAfter(from, n, unknown), ended(from, n)] : [],
        )
      : statesAfter(from, alone, unknown);
  return unknown.length === 0 ? next : Promise.all(unknown).then(() => nextStates(from));
}

/** Whether a step has the same result whenever it is taken, and changes nothing for others. */
function isUnnoticed({ folder }: LockState, { position: { step } }: Contender): boolean {
  if (step.kind === 'clock') return true;
  // A removed name never returns.
  return (step.kind === 'connect' || step.kind === 'unlink') && !folder.has(step.name);
}

/** The states after a process has taken its step, one for each result that it may have, if they are known. */
function statesAfter(from: LockState, n: number, unknown: Promise<Position>[]): LockState[] {
  const contender = from.contenders[n] as Contender;
  const { position, looks, listed } = contender;
  const { step } = position;
  if (step.kind === 'list' && !listed)
    return [withContender(from, n, { ...contender, listed: namesIn(from) })];
  const left = looks - Number(step.kind === 'clock');
  return resultsOf(from, n, contender).flatMap(([result, changes]) => {
    const after = position.after(result);
    if (after instanceof Promise) {
      unknown.push(after);
      return [];
    }
    const changed = { ...from, ...changes };
    if (after.step.kind === 'end') return [ended(changed, n)];
    return [withContender(changed, n, { position: after, looks: left })];
  });
}

/** The results that the step of a process can have, each with what it changes. */
function resultsOf(
  state: LockState,
  n: number,
  { position: { step }, listed = [], looks }: Contender,
): [result: Result, changes?: Partial<LockState>][] {
  const { folder, sockets } = state;
  if (step.kind === 'bind') {
    const bound = new Map(sockets).set(socketOf(step.name), false);
    return [['', { folder: new Set([...folder, step.name]), sockets: bound }]];
  }
  if (step.kind === 'listen')
    return [['', { sockets: new Map(sockets).set(socketOf(step.name), true) }]];
  if ('name' in step && !folder.has(step.name)) return [['ENOENT']];
  switch (step.kind) {
    case 'chmod':
      return [['']];
    case 'rename':
      return [['', { folder: new Set([...without(folder, step.name), step.to]) }]];
    case 'unlink':
      return [['', { folder: without(folder, step.name) }]];
    case 'connect':
      return [[sockets.get(socketOf(step.name)) ? '' : 'ECONNREFUSED']];
    case 'list':
      return listings(listed, namesIn(state)).map((names) => [names]);
    case 'clock':
      return looks > 0 ? [[false], [true]] : [[true]];
    case 'close':
      return [['', { sockets: withoutThoseOf(sockets, n) }]];
    case 'hold':
      return [['']];
    case 'end':
      return [];
  }
}

/** The possible lists of a folder: a name that comes or goes meanwhile is listed or not. */
function listings(before: readonly string[], after: readonly string[]): string[][] {
  let all: string[][] = [[]];
  for (const name of [...new Set([...before, ...after])].sort()) {
    const isStable = before.includes(name) && after.includes(name);
    const withName = all.map((each) => [...each, name]);
    all = isStable ? withName : [...all, ...withName];
  }
  return all;
}

function withContender(from: LockState, n: number, contender?: Contender): LockState {
  return { ...from, contenders: from.contenders.with(n, contender), from };
}

/** The state once a process has ended or was killed. */
function ended(from: LockState, n: number): LockState {
  return { ...withContender(from, n), sockets: withoutThoseOf(from.sockets, n) };
}

/** A socket, which keeps its owner and its number when it is renamed. */
function socketOf(name: string): string {
  return name.replace('~', '');
}

function withoutThoseOf(sockets: LockState['sockets'], n: number): LockState['sockets'] {
  return new Map([...sockets].filter(([name]) => !name.startsWith(`${n + 1}-`)));
}

function without(folder: LockState['folder'], name: string): Set<string> {
  return new Set([...folder].filter((each) => each !== name));
}
