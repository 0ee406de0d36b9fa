/*
 * Recovers from crash states at random. The first history has the seed of the run, the next one the next
 * number, and so on: a run with TEST_SEED set to the seed of a failure begins with that history.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';

import t from 'tap';

import type { NewPlant } from '../../dist/plant.js';
import { byLength, seed as first } from '../length.js';
import {
  keyOfState,
  THE_END,
  killsAt,
  powerCutsAt,
  runProcess,
  runUntil,
  type CrashState,
  type Moment,
  type Setting,
} from './crash.js';
import { randomOutcome } from './disk.js';
import { open, recover, send, type Process } from './invariants.js';
import { knowledgeOf, lineOf } from './knowledge.js';
import { createRandom, type Random } from './random.js';
import { worldWith } from './world.js';

/** Few ids, so that plants are sent again, and different plants are sent with the same id. */
const IDS = 10;
const MOST_CRASHES = 5;
const MOST_MOMENTS = 40;
/** At this share of the moments, a crash is tried, too, that does not become part of the history. */
const TRIED = 0.4;

const FOLDER = '/srv/data';

/**
 * Lives through a history: a log is used until a crash, then recovered and used until the next crash,
 * which may come during the recovery. Recovers every state that a crash leaves, unless it is in `seen`.
 *
 * @throws Violation if a promise is not kept.
 */
async function liveThrough(seed: number, seen: Set<string>): Promise<void> {
  const random = createRandom(seed);
  const setting: Setting = {
    path: `${FOLDER}/plants.jsonl`,
    dsyncIsDurable: random.chance(0.7),
  };
  let state = beginning(random);
  for (let crashes = 1 + random.below(MOST_CRASHES); crashes > 0; crashes--) {
    const states: CrashState[] = [];
    let left = 1 + random.below(MOST_MOMENTS);
    const moment = await runUntil(state, setting, randomUse(random, state), (each) => {
      if (random.chance(TRIED)) states.push(crashAt(each, random));
      return --left === 0 || each.operation === THE_END;
    });
    state = crashAt(moment, random);
    states.push(state);
    for (const each of states) {
      const key = keyOfState(each, true);
      if (!seen.has(key))
        await runProcess(each, setting, (process) => recover(process, plantAfter(each)));
      seen.add(key);
    }
  }
}

function beginning(random: Random): CrashState {
  if (random.chance(0.2)) return { world: worldWith('/', {}), knowledge: knowledgeOf(), trail: [] };
  const ids = Array.from({ length: random.below(4) }, (_, id) => id);
  const plants = ids.map((id) => randomPlant(random, BigInt(id)));
  const tail = random.pick(['', '', '{"id":3,"na', '\0'.repeat(700)]);
  return {
    world: worldWith(FOLDER, { 'plants.jsonl': plants.map(lineOf).join('') + tail }),
    knowledge: knowledgeOf(plants),
    trail: [],
  };
}

function crashAt(moment: Moment, random: Random): CrashState {
  const kills = random.chance(0.4) ? killsAt(moment) : [];
  return random.pick(kills.length > 0 ? kills : powerCutsAt(moment, randomOutcome(random)));
}

/** A process that recovers the log after a crash, then uses it in random ways. */
function randomUse(random: Random, { trail }: CrashState): (process: Process) => Promise<void> {
  return async (process) => {
    const { machine } = process;
    if (trail.length > 0) await recover(process, plantAfter({ trail }));
    for (let opened = random.below(3); opened > 0; opened--) {
      const log = await open(process);
      const sending: Promise<void>[] = [];
      for (let steps = random.below(8); steps > 0; steps--) {
        if (random.chance(0.2)) machine.room = random.below(2_000);
        else if (random.chance(0.2)) machine.room = Infinity;
        if (random.chance(0.02)) machine.failingWrite = 1;
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
  };
}

function plantAfter({ trail }: Pick<CrashState, 'trail'>): NewPlant {
  return { id: BigInt(-trail.length), name: 'after a crash' };
}

function randomPlants(random: Random): NewPlant[] {
  const ids = new Set(Array.from({ length: 1 + random.below(4) }, () => random.below(IDS)));
  return [...ids].map((id) => randomPlant(random, BigInt(id)));
}

function randomPlant(random: Random, id: bigint): NewPlant {
  const name = random.pick([
    'fern',
    'ivy',
    'Pfl\u00e4nzchen \u{1f33f}',
    'oak'.repeat(random.below(700)),
  ]);
  return random.chance(0.7) ? { id, name } : { id, name, tag: 'indoor' };
}

const STATES = byLength(250, 2_500, 100_000);

t.setTimeout(0);

t.test('no acknowledged plant is lost in random histories with crashes', async (t) => {
  const seen = new Set<string>();
  for (let seed = first; seen.size < STATES; seed++)
    await t.resolves(liveThrough(seed, seen), `TEST_SEED=${seed}`);
});
