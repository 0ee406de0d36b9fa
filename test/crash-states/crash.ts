import { createHash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';

import { allOutcomes, keyOf, reachable, type Effect, type Outcomes } from './disk.js';
import { LOG, recover, type SimulatedProcess } from './invariants.js';
import { copyOf, keyOfKnowledge, type Knowledge } from './knowledge.js';
import { createMachine } from './simulated-fs.js';
import type { Workload } from './workloads.js';
import { afterKill, afterPowerCut, keyOfWorld, type World } from './world.js';

/** What remains after a crash. */
export interface CrashState {
  readonly world: World;
  readonly knowledge: Knowledge;
  /** The crashes so far, in order. */
  readonly trail: readonly string[];
}

/** A moment at which a process may crash. */
export interface Moment {
  readonly process: SimulatedProcess;
  readonly trail: readonly string[];
  /** The operation in progress. */
  readonly operation: string;
  /** The change that the operation makes, if it makes one. */
  readonly inFlight?: Effect | undefined;
}

/** The states that a power cut at a moment can leave. */
export function powerCutsAt(
  { process, trail, operation }: Moment,
  outcomes: Outcomes,
): CrashState[] {
  const { machine } = process;
  const { world } = machine;
  const log = machine.inoOf(LOG);
  const writes = world.pending.filter((effect) => effect.kind === 'write');
  const interrupted = writes.filter(({ ino }) => ino === log);
  return afterPowerCut(world, outcomes).map((after) => ({
    world: after,
    knowledge: { ...copyOf(process.knowledge), interrupted },
    trail: [...trail, `power cut in ${operation}`],
  }));
}

/** The states that can remain if the process is killed at a moment. */
export function killsAt({ process, trail, operation, inFlight }: Moment): CrashState[] {
  return afterKill(process.machine.world, inFlight).map((world) => ({
    world,
    knowledge: copyOf(process.knowledge),
    trail: [...trail, `kill in ${operation}`],
  }));
}

/**
 * A key that is equal for equal states after the same number of crashes. After the last crash, only
 * what processes see matters, and not whether it is durable.
 */
function keyOfState({ world, knowledge, trail }: CrashState, isLast: boolean): string {
  const key = isLast ? keyOf(reachable(world.visible)) : keyOfWorld(world);
  const text = `${trail.length} ${keyOfKnowledge(knowledge)} ${key}`;
  return createHash('md5').update(text).digest('base64');
}

export interface ExploreOptions {
  /** The number of crashes, each after the recovery from the one before. */
  readonly crashes: number;
  /** Chooses some of the states that crashes at a moment can leave. Default: all of them. */
  readonly choose?: (moment: Moment) => readonly CrashState[];
  readonly dsyncIsDurable: boolean;
}

const allAt = (moment: Moment): CrashState[] => [
  ...powerCutsAt(moment, allOutcomes),
  ...killsAt(moment),
];

/**
 * Runs a workload and recovers from every state that a crash at any moment can leave; then from
 * every state that a crash during one of these recoveries can leave, and so on. Resolves to the
 * number of different states that were checked, and to the violations, each with the crashes that
 * led to it.
 *
 * A crash is tried during each operation, as late as possible: when all other work waits for the
 * operation. The last crash is tried at the end of the workload.
 */
export async function explore(
  { start, knowledge, run, goOn }: Workload,
  { crashes, choose = allAt, dsyncIsDurable }: ExploreOptions,
): Promise<{ states: number; violations: string[] }> {
  const seen = new Set<string>();
  const violations: string[] = [];

  async function crashEverywhere(
    { world, knowledge, trail }: CrashState,
    work: (process: SimulatedProcess) => Promise<unknown>,
  ): Promise<void> {
    const isLast = trail.length === crashes;
    const next: CrashState[] = [];
    let operations = 0;
    function crash(operation: string, inFlight?: Effect): void {
      for (const after of choose({ process, trail, operation, inFlight })) {
        const key = keyOfState(after, after.trail.length === crashes);
        if (!seen.has(key)) next.push(after);
        seen.add(key);
      }
    }
    async function onOperation(name: string, inFlight?: Effect): Promise<void> {
      if (isLast) return;
      const operation = `operation ${++operations} (${name})`;
      await nextTurn();
      crash(operation, inFlight);
    }
    const machine = createMachine(world, { dsyncIsDurable, onOperation });
    const process: SimulatedProcess = { machine, knowledge: copyOf(knowledge) };
    try {
      await work(process);
      if (!isLast) crash('the end');
    } catch (error) {
      violations.push([...trail, (error as Error).message].join('\n'));
    }
    for (const after of next) {
      const number = after.trail.length;
      const newPlant = { id: BigInt(-number), name: `after crash ${number} \u{1f33f}` };
      await crashEverywhere(after, async (process) => {
        await recover(process, newPlant);
        if (number < crashes) await goOn?.(process);
      });
    }
  }

  await crashEverywhere({ world: start, knowledge, trail: [] }, run);
  return { states: seen.size, violations };
}
