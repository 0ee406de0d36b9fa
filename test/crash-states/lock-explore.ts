import { holdersIn, keyOf, nextStates, startOf, type LockState } from './lock-states.js';
import { beginningOf, type Mutate } from './lock-steps.js';

export interface LockOptions {
  readonly processes: number;
  /** How often each of them looks at the clock before its time is over. */
  readonly looks: number;
  /** Whether a folder is read in one step; otherwise names can come and go meanwhile. */
  readonly listsAtOnce?: boolean;
  /** Gives the lock another file system, to break it. */
  readonly mutate?: Mutate;
}

export type Wrong = 'two hold the lock' | 'nobody can take the lock' | 'a dead claim is left';

export interface LockExploration {
  readonly states: number;
  readonly steps: number;
  /** What went wrong, and the states that first led there. */
  readonly violations: ReadonlyMap<Wrong, string>;
}

/** A state, and the visit from which it was reached. */
interface Visit {
  readonly state: LockState;
  readonly from?: Visit;
}

/**
 * Lets processes acquire the lock at once, in every order of their steps, with each of them stopped or
 * killed at any moment. If all of them are killed in any state, the next process must get the lock.
 */
export async function exploreLock(options: LockOptions): Promise<LockExploration> {
  const { processes, looks, listsAtOnce = false, mutate } = options;
  const numbers = Array.from({ length: processes }, (_, n) => n + 1);
  const positions = await Promise.all(numbers.map((number) => beginningOf(number, mutate)));
  const violations = new Map<Wrong, string>();
  const seen = new Set<string>();
  const foldersSeen = new Set<string>();
  const visits: Visit[] = [{ state: startOf(positions, looks) }];
  let steps = 0;

  function note(wrong: Wrong | undefined, visit: Visit): void {
    if (wrong && !violations.has(wrong)) violations.set(wrong, trailOf(visit));
  }

  for (let from; (from = visits.pop());) {
    const next = nextStates(from.state, { listsAtOnce });
    for (const state of Array.isArray(next) ? next : await next) {
      steps++;
      const key = keyOf(state);
      if (seen.has(key)) continue;
      seen.add(key);
      const visit = { state, from };
      visits.push(visit);
      if (holdersIn(state) > 1) note('two hold the lock', visit);
      const left = [...state.folder.keys()].sort();
      if (foldersSeen.has(left.join(' '))) continue;
      foldersSeen.add(left.join(' '));
      note(await succeed(processes + 1, left, mutate), visit);
    }
  }
  return { states: seen.size, steps, violations };
}

/** What goes wrong when a process takes and releases the lock among dead claims. */
async function succeed(
  number: number,
  left: readonly string[],
  mutate?: Mutate,
): Promise<Wrong | undefined> {
  let state = startOf([await beginningOf(number, mutate)], 2, left);
  let holds = false;
  while (state.contenders[0]) {
    holds ||= holdersIn(state) > 0;
    // In the first state, the process takes its step; in others, it is late or killed.
    [state = state] = await nextStates(state, { listsAtOnce: true });
  }
  if (!holds) return 'nobody can take the lock';
  return state.folder.size > 0 ? 'a dead claim is left' : undefined;
}

function trailOf({ state, from }: Visit): string {
  const steps = state.contenders.map((each) => JSON.stringify(each?.position.step ?? 'ended'));
  return `${from ? trailOf(from) : ''}${steps.join(' ')}\n`;
}
