import { fail } from 'node:assert/strict';

import t from 'tap';

import type { NewPlant } from '../../dist/plant.js';
import {
  killsAt,
  THE_END,
  powerCutsAt,
  runProcess,
  runUntil,
  type CrashState,
  type Moment,
  type Setting,
} from './crash.js';
import { allOutcomes } from './disk.js';
import { open, recover, send, type Process } from './invariants.js';
import { knowledgeOf, lineOf } from './knowledge.js';
import { worldWith } from './world.js';

/* The states in which the simulation found a broken promise. */

const FERN = { id: 1n, name: 'fern' };
const IVY = { id: 2n, name: 'ivy' };
const OAK = { id: 3n, name: 'oak'.repeat(300) };
const MOSS = { id: 4n, name: 'moss' };

const setting: Setting = {
  path: '/srv/data/plants.jsonl',
  dsyncIsDurable: true,
  openedTwice: new Set(),
};

/** A log that holds the fern. */
const WITH_FERN: CrashState = {
  world: worldWith('/srv/data', { 'plants.jsonl': lineOf(FERN) }),
  knowledge: knowledgeOf([FERN]),
  trail: [],
};

/** A process that stores plants. */
function storing(...plants: readonly NewPlant[]): (process: Process) => Promise<void> {
  return async (process) => {
    const log = await open(process);
    await send(process, log, plants);
    await log.close();
  };
}

function during(name: string): (moment: Moment) => boolean {
  return ({ operation }) => operation.includes(`(${name}`);
}

function atTheEnd({ operation }: Moment): boolean {
  return operation === THE_END;
}

/** The process is killed after an operation has happened as a whole, but before it returned. */
function killed(moment: Moment): CrashState {
  return killsAt(moment).at(-1) ?? fail('nothing is left');
}

/** The power is cut, and only what is certainly durable is left. */
function cut(moment: Moment): CrashState {
  const [state = fail('nothing is left')] = powerCutsAt(moment, (disk) => [disk]);
  return state;
}

function recovered(state: CrashState): Promise<void> {
  return runProcess(state, setting, (process) => recover(process, MOSS));
}

t.test(
  'a plant that only the page cache holds is not acknowledged before it is durable',
  async (t) => {
    const writing = await runUntil(WITH_FERN, setting, storing(IVY), during('write'));
    const again = await runUntil(killed(writing), setting, storing(IVY), atTheEnd);
    t.ok(again.process.knowledge.acknowledged.has(IVY.id));
    await t.resolves(recovered(cut(again)));
  },
);

t.test('a folder that a killed process created is made durable by the next one', async (t) => {
  for (const name of ['srv', 'data']) {
    const empty = { world: worldWith('/', {}), knowledge: knowledgeOf(), trail: [] };
    const creating = await runUntil(empty, setting, storing(FERN), during(`mkdir ${name}`));
    const again = await runUntil(killed(creating), setting, storing(FERN), atTheEnd);
    t.ok(again.process.knowledge.acknowledged.has(FERN.id), name);
    await t.resolves(recovered(cut(again)));
  }
});

t.test('the rest of a write to a full disk does not reappear after the next write', async (t) => {
  const work = async (process: Process): Promise<void> => {
    const log = await open(process);
    process.machine.room = lineOf(OAK).length + lineOf(IVY).length;
    await send(process, log, [OAK, IVY, MOSS]);
    process.machine.room = Infinity;
    await send(process, log, [MOSS]);
  };
  const moment = await runUntil(WITH_FERN, setting, work, during(`write ${lineOf(MOSS).length} `));
  for (const state of powerCutsAt(moment, allOutcomes)) await t.resolves(recovered(state));
});

t.test('the next process does not take a plant whose write failed for stored', async (t) => {
  const work = async (process: Process): Promise<void> => {
    const log = await open(process);
    process.machine.failingWrite = 1;
    await send(process, log, [IVY]);
    await log.close();
  };
  const failed = await runUntil(WITH_FERN, setting, work, atTheEnd);
  t.notOk(failed.process.knowledge.acknowledged.has(IVY.id));
  const again = await runUntil(killed(failed), setting, storing(IVY), atTheEnd);
  t.ok(again.process.knowledge.acknowledged.has(IVY.id));
  await t.resolves(recovered(cut(again)));
});
