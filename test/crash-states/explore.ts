import type { System } from '../../dist/log/files.js';
import {
  keyOfState,
  killsAt,
  powerCutsAt,
  runProcess,
  type CrashState,
  type Moment,
  type Setting,
} from './crash.js';
import { allOutcomes } from './disk.js';
import { recover, Violation, type Process } from './invariants.js';
import type { Knowledge } from './knowledge.js';
import type { World } from './world.js';

/** What a process does with a log, and the state that it starts from. */
export interface Workload {
  readonly start: World;
  readonly path: string;
  readonly knowledge: Knowledge;
  readonly run: (process: Process) => Promise<unknown>;
}

export interface Exploration {
  /** How many different states were checked. */
  readonly states: number;
  /** What went wrong, and after which crashes. */
  readonly violations: readonly string[];
}

export interface ExploreOptions {
  /** How many crashes follow each other. */
  readonly crashes: number;
  readonly dsyncIsDurable?: boolean;
  readonly mutate?: (fs: System) => System;
}

/**
 * Runs a workload and recovers from every state that a crash at any moment can leave; then from every
 * state that a crash during one of these recoveries can leave, and so on.
 */
export async function explore(
  { start: world, path, knowledge, run }: Workload,
  { crashes, dsyncIsDurable = true, mutate }: ExploreOptions,
): Promise<Exploration> {
  const setting: Setting = {
    path,
    dsyncIsDurable,
    openedTwice: new Set(),
    ...(mutate && { mutate }),
  };
  const seen = new Set<string>();
  const violations: string[] = [];

  async function crashEverywhere(
    state: CrashState,
    work: (process: Process) => Promise<unknown>,
  ): Promise<void> {
    const next: CrashState[] = [];
    function collect(moment: Moment): void {
      for (const after of [...powerCutsAt(moment, allOutcomes), ...killsAt(moment)]) {
        const key = keyOfState(after, after.trail.length === crashes);
        if (!seen.has(key)) next.push(after);
        seen.add(key);
      }
    }
    try {
      await runProcess(state, setting, work, state.trail.length < crashes ? collect : undefined);
    } catch (error) {
      if (!(error instanceof Violation)) throw error;
      violations.push(error.message);
    }
    for (const after of next) {
      const number = after.trail.length;
      const newPlant = { id: BigInt(-number), name: `after crash ${number}` };
      await crashEverywhere(after, (process) => recover(process, newPlant));
    }
  }

  await crashEverywhere({ world, knowledge, trail: [] }, run);
  return { states: seen.size, violations };
}
