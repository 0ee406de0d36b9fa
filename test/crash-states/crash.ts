import { setImmediate as nextTurn } from 'node:timers/promises';

import type { System } from '../../dist/log/files.js';
import { allOutcomes, digestOf, keyOf, reachable, type Effect, type Outcomes } from './disk.js';
import { recover, Violation, type Process } from './invariants.js';
import { copyOf, keyOfKnowledge, type Knowledge } from './knowledge.js';
import { createMachine, type Machine } from './simulated-fs.js';
import { afterKill, afterPowerCut, keyOfWorld, showsFailedWrite, type World } from './world.js';
import type { Workload } from './workloads.js';

/** What a crash leaves. */
export interface CrashState {
  readonly world: World;
  readonly knowledge: Knowledge;
  /** All crashes so far. */
  readonly trail: readonly string[];
}

/** What all processes on one log have in common. */
export interface Setting {
  readonly path: string;
  readonly dsyncIsDurable: boolean;
  /** Gives the log another file system than the machine's, to break it. */
  readonly mutate?: (fs: System) => System;
}

/** A moment at which a process may crash. */
export interface Moment {
  readonly process: Process;
  readonly trail: readonly string[];
  /** The operation in progress. */
  readonly operation: string;
  /** What it changes. */
  readonly inFlight: Effect | undefined;
}

export const THE_END = 'the end';

/**
 * Runs a process on the state that a crash has left. Calls `onMoment` at its end, and during each of its
 * operations: as late as possible, when all that remains to be done waits for that operation.
 *
 * @throws Violation if a promise is broken or anything else fails.
 */
export async function runProcess(
  { world, knowledge, trail }: CrashState,
  { path, dsyncIsDurable, mutate = (fs) => fs }: Setting,
  work: (process: Process) => Promise<unknown>,
  onMoment?: (moment: Moment) => void | Promise<void>,
): Promise<void> {
  let operations = 0;
  const onOperation = async (name: string, inFlight?: Effect): Promise<void> => {
    const operation = `operation ${++operations} (${name})`;
    await nextTurn();
    await onMoment?.({ process, trail, operation, inFlight });
  };
  const machine = createMachine(world, { dsyncIsDurable, ...(onMoment && { onOperation }) });
  const fs = mutate(machine.fs);
  const process: Process = { machine, fs, path, knowledge: copyOf(knowledge) };
  try {
    await work(process);
    await onMoment?.({ process, trail, operation: THE_END, inFlight: undefined });
  } catch (cause) {
    const message = cause instanceof Error ? cause.message : String(cause);
    throw new Violation([...trail, message].join('\n'), { cause });
  }
}

/** Runs a process until a moment, and never resumes it. */
export function runUntil(
  state: CrashState,
  setting: Setting,
  work: (process: Process) => Promise<unknown>,
  isTheMoment: (moment: Moment) => boolean,
): Promise<Moment> {
  return new Promise((resolve, reject) => {
    const end = runProcess(state, setting, work, (moment) => {
      if (!isTheMoment(moment)) return undefined;
      resolve(moment);
      return new Promise<void>(() => undefined);
    });
    end.then(() => reject(new Error('the moment never came')), reject);
  });
}

/** What power cuts at a moment can leave. */
export function powerCutsAt(moment: Moment, outcomes: Outcomes): CrashState[] {
  const { process, trail, operation } = moment;
  const { machine, path } = process;
  const knowledge = { ...copyOf(process.knowledge), interrupted: writesTo(machine, path) };
  return afterPowerCut(machine.world, outcomes).map((world) => ({
    world,
    knowledge,
    trail: [...trail, `power cut in ${operation}`],
  }));
}

/** The writes to a file that are not durable. */
function writesTo(machine: Machine, path: string): Knowledge['interrupted'] {
  const ino = machine.inoOf(path);
  const writes = machine.world.pending.filter((effect) => effect.kind === 'write');
  return writes.filter((write) => write.ino === ino);
}

/**
 * The states after the process is killed at a moment. States for which the log promises nothing are
 * left out: those between a failed write and the cut that undoes it.
 */
export function killsAt({ process, trail, operation, inFlight }: Moment): CrashState[] {
  const { world } = process.machine;
  const knowledge = copyOf(process.knowledge);
  return (inFlight ? afterKill(world, inFlight) : [world])
    .filter((after) => inFlight?.kind !== 'truncate' || !showsFailedWrite(after))
    .map((after) => ({ world: after, knowledge, trail: [...trail, `kill in ${operation}`] }));
}

/**
 * A key that is equal for equal states after the same number of crashes. After the last crash, only what
 * processes see matters, not whether it is durable.
 */
export function keyOfState({ world, knowledge, trail }: CrashState, isLast: boolean): string {
  const key = isLast ? keyOf(reachable(world.visible)) : keyOfWorld(world);
  return digestOf(Buffer.from(`${trail.length} ${keyOfKnowledge(knowledge)} ${key}`));
}

export interface Exploration {
  /** How many different states were checked. */
  readonly states: number;
  /** What went wrong, and after which crashes. */
  readonly violations: readonly string[];
}

export interface ExploreOptions extends Partial<Omit<Setting, 'path'>> {
  /** How many crashes follow each other. */
  readonly crashes: number;
}

/**
 * Runs a workload and recovers from every state that a crash at any moment can leave; then from every
 * state that a crash during one of these recoveries can leave, and so on.
 */
export async function explore(
  { start: world, path, knowledge, run }: Workload,
  { crashes, dsyncIsDurable = true, ...options }: ExploreOptions,
): Promise<Exploration> {
  const setting: Setting = { path, dsyncIsDurable, ...options };
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
