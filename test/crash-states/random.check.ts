/*
 * Recovers from crash states at random. The first history has the seed of the run, the second
 * history the next number, and so on. To repeat a failure, set TEST_SEED to the seed that it shows:
 * the run begins with that history.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';

import t from 'tap';

import type { NewPlant } from '../../dist/plant.js';
import { byLength, seed as first } from '../helpers/effort.js';
import { explore, killsAt, powerCutsAt, type CrashState, type Moment } from './crash.js';
import { randomOutcome } from './disk.js';
import { open, send, type SimulatedProcess } from './invariants.js';
import { createRandom, type Random } from './random.js';
import { onLog, onNothing, type Workload } from './workloads.js';

/** Few ids, so that plants are sent again, and different plants are sent with the same id. */
const IDS = 10;
const MOST_CRASHES = 5;
/**
 * The shares of the moments at which a crash is tried. A crash within a write can leave the most
 * states.
 */
const TRIED = { inWrite: 0.25, otherwise: 0.04 };

/** A log that is used, and used again after each crash and recovery. */
function randomWorkload(random: Random): Workload {
  const ids = Array.from({ length: random.below(4) }, (_, id) => id);
  const plants = ids.map((id) => randomPlant(random, BigInt(id)));
  const tail = random.pick(['', '', '{"id":3,"na', '\0'.repeat(700)]);
  const use = (process: SimulatedProcess): Promise<void> => useLog(process, random);
  const workload = random.chance(0.2) ? onNothing(use) : onLog(plants, tail, use);
  return { ...workload, goOn: use };
}

function crashesAt(moment: Moment, random: Random): CrashState[] {
  const isWriting = moment.inFlight?.kind === 'write';
  if (!random.chance(isWriting ? TRIED.inWrite : TRIED.otherwise)) return [];
  const isKilled = random.chance(0.3);
  return [random.pick(isKilled ? killsAt(moment) : powerCutsAt(moment, randomOutcome(random)))];
}

/** Opens a log several times, and sends it plants, while the disk may be full, fail or hang. */
async function useLog(process: SimulatedProcess, random: Random): Promise<void> {
  const { machine } = process;
  for (let opened = random.below(3); opened > 0; opened--) {
    const log = await open(process);
    const sending: Promise<void>[] = [];
    for (let steps = random.below(8); steps > 0; steps--) {
      if (random.chance(0.2)) machine.room = random.below(2_000);
      else if (random.chance(0.2)) machine.room = Infinity;
      machine.failsToWrite = random.chance(0.02);
      machine.hangs = random.chance(0.1);
      const sent = send(process, log, randomPlants(random));
      sent.catch(() => undefined);
      sending.push(sent);
      if (random.chance(0.5)) await sent;
      else await nextTurn();
    }
    await Promise.all(sending);
    await log.close();
  }
}

function randomPlants(random: Random): NewPlant[] {
  const ids = new Set(Array.from({ length: 1 + random.below(4) }, () => random.below(IDS)));
  return [...ids].map((id) => randomPlant(random, BigInt(id)));
}

function randomPlant(random: Random, id: bigint): NewPlant {
  const long = 'oak'.repeat(random.below(700));
  const name = random.pick(['fern', 'ivy', 'Pfl\u00e4nzchen \u{1f33f}', long]);
  return random.chance(0.7) ? { id, name } : { id, name, tag: 'indoor' };
}

const STATES = byLength(120, 2_500, 100_000);

t.setTimeout(0);

t.test('no acknowledged plant is lost in random histories with crashes', async (t) => {
  for (let seed = first, states = 0; states < STATES; seed++) {
    const random = createRandom(seed);
    const explored = await explore(randomWorkload(random), {
      crashes: 1 + random.below(MOST_CRASHES),
      choose: (moment) => crashesAt(moment, random),
      dsyncIsDurable: random.chance(0.7),
    });
    states += explored.states;
    t.strictSame(explored.violations, [], `TEST_SEED=${seed}`);
  }
});
