import { ok, rejects } from 'node:assert/strict';

import { repairLog } from '../../dist/log/repair.js';
import type { NewPlant } from '../../dist/plant.js';
import { untilAvailable } from '../log/support.js';
import { open, send, type Process } from './invariants.js';
import { knowledgeOf, lineOf, type Knowledge } from './knowledge.js';
import { worldWith, type World } from './world.js';

/** What a process does with a log, and the state that it starts from. */
export interface Workload {
  readonly start: World;
  readonly path: string;
  readonly knowledge: Knowledge;
  readonly run: (process: Process) => Promise<unknown>;
}

const FOLDER = '/srv/data';
const path = `${FOLDER}/plants.jsonl`;

const FERN: NewPlant = { id: 1n, name: 'fern' };
const IVY: NewPlant = { id: 2n, name: 'ivy', tag: 'indoor' };
const MOSS: NewPlant = { id: 3n, name: 'moss' };
/** Its line is longer than a sector. */
const OAK: NewPlant = { id: 4n, name: 'oak'.repeat(200) };

const TORN = lineOf(OAK).slice(0, 500);
/** The byte offset of a torn tail behind a line. */
export const TORN_AT = lineOf(FERN).length;
const ZEROS = '\0'.repeat(300);

interface Given {
  /** Acknowledged plants. */
  readonly plants: readonly NewPlant[];
  readonly damaged?: readonly string[];
  readonly tail?: string;
  readonly lacksNewline?: boolean;
}

/** A workload on a log with the lines of some plants, then those that are damaged, and a torn tail. */
function onLog(given: Given, run: Workload['run']): Workload {
  const { plants, damaged = [], tail = '', lacksNewline = false } = given;
  const content = [...plants.map(lineOf), ...damaged, tail].join('');
  return {
    start: worldWith(FOLDER, { 'plants.jsonl': lacksNewline ? content.slice(0, -1) : content }),
    path,
    knowledge: knowledgeOf(plants, { tails: tail === '' ? [] : [tail], damaged }),
    run,
  };
}

/** Opens the log and sends groups of plants, each group at once. */
function storing(...groups: readonly NewPlant[][]): Workload['run'] {
  return async (process) => {
    const log = await open(process);
    for (const plants of groups) await send(process, log, plants);
    await log.close();
  };
}

async function repair({ fs, knowledge }: Process): Promise<void> {
  await repairLog(fs, path, () => undefined);
  knowledge.damaged.set('x\n', 'moved');
}

export const workloads = {
  'a log is created, in folders of its own': {
    start: worldWith('/srv', {}),
    path: '/srv/garden/data/plants.jsonl',
    knowledge: knowledgeOf(),
    run: storing([FERN], [OAK, IVY, MOSS]),
  },
  'a log with a torn tail is opened': onLog({ plants: [FERN], tail: TORN }, storing([IVY], [OAK])),
  'a log whose last line lacks its newline is opened': onLog(
    { plants: [FERN, OAK], lacksNewline: true },
    storing([IVY], [OAK, MOSS]),
  ),
  'a newline is to be added to the last line, and the write fails': onLog(
    { plants: [FERN], lacksNewline: true },
    async (process) => {
      process.machine.failingWrite = 1;
      await rejects(open(process));
      await storing([IVY])(process);
    },
  ),
  'a log with a tail of zeros is opened': onLog({ plants: [FERN], tail: ZEROS }, storing([IVY])),
  'a torn tail is to be copied to a full disk': onLog(
    { plants: [FERN], tail: TORN },
    async (process) => {
      process.machine.room = 20;
      await rejects(open(process));
      process.machine.room = Infinity;
      await storing([IVY])(process);
    },
  ),
  'a disk is full, and has room again': onLog({ plants: [FERN] }, async (process) => {
    const { machine } = process;
    const log = await open(process);
    machine.room = lineOf(OAK).length + lineOf(IVY).length + 20;
    await send(process, log, [OAK, IVY, MOSS]);
    machine.room = Infinity;
    await send(process, log, [MOSS]);
    await send(process, log, [OAK]);
    await log.close();
  }),
  'a write fails': onLog({ plants: [FERN] }, async (process) => {
    const log = await open(process);
    process.machine.failingWrite = 1;
    await send(process, log, [IVY, OAK]);
    await log.close();
  }),
  'a disk hangs, and responds again': onLog({ plants: [FERN] }, async (process) => {
    const { machine, knowledge } = process;
    const log = await open(process);
    machine.hangs = true;
    await send(process, log, [IVY, OAK]);
    ok(!knowledge.acknowledged.has(IVY.id), 'they were refused');
    machine.hangs = false;
    await untilAvailable(log);
    await send(process, log, [IVY, MOSS]);
    await log.close();
  }),
  'a full disk hangs': onLog({ plants: [FERN] }, async (process) => {
    const { machine } = process;
    const log = await open(process);
    machine.room = lineOf(IVY).length + 20;
    machine.hangs = true;
    await send(process, log, [IVY, OAK]);
    await untilAvailable(log);
    machine.hangs = false;
    machine.room = Infinity;
    await send(process, log, [OAK]);
    await log.close();
  }),
  'a damaged log is to be repaired on a full disk': onLog(
    { plants: [FERN], damaged: ['x\n'] },
    async (process) => {
      process.machine.room = 30;
      await rejects(repair(process));
      process.machine.room = Infinity;
      await repair(process);
    },
  ),
  'a damaged log is repaired': onLog(
    { plants: [FERN], damaged: ['x\n'], tail: '{"id":3' },
    async (process) => {
      await repair(process);
      await storing([MOSS])(process);
    },
  ),
} satisfies Record<string, Workload>;
