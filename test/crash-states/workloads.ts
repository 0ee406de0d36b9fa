import { ok, rejects } from 'node:assert/strict';

import { repairLog } from '../../dist/log/repair.js';
import type { NewPlant } from '../../dist/plant.js';
import { untilAvailable } from '../log/support.js';
import type { Workload } from './explore.js';
import { open, send, type Process } from './invariants.js';
import { knowledgeOf, lineOf } from './knowledge.js';
import { worldWith } from './world.js';

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

function logOf(...plants: readonly NewPlant[]): string {
  return plants.map(lineOf).join('');
}

async function repair({ fs, knowledge }: Process): Promise<void> {
  await repairLog(fs, path, () => undefined);
  knowledge.damaged.set('x\n', 'moved');
}

export const workloads: Record<string, Workload> = {
  'a log is created, in folders of its own': {
    start: worldWith('/srv', {}),
    path: '/srv/garden/data/plants.jsonl',
    knowledge: knowledgeOf(),
    async run(process) {
      const log = await open(process);
      await send(process, log, [FERN]);
      await send(process, log, [OAK, IVY, MOSS]);
      await log.close();
    },
  },
  'a log with a torn tail is opened': {
    start: worldWith(FOLDER, {
      'plants.jsonl': logOf(FERN) + TORN,
      token: 'secret',
    }),
    path,
    knowledge: knowledgeOf([FERN], { tails: [TORN] }),
    async run(process) {
      const log = await open(process);
      await send(process, log, [IVY]);
      await send(process, log, [OAK]);
      await log.close();
    },
  },
  'a log whose last line lacks its newline is opened': {
    start: worldWith(FOLDER, { 'plants.jsonl': logOf(FERN, OAK).slice(0, -1) }),
    path,
    knowledge: knowledgeOf([FERN, OAK]),
    async run(process) {
      const log = await open(process);
      await send(process, log, [IVY]);
      await send(process, log, [OAK, MOSS]);
      await log.close();
    },
  },
  'a newline is to be added to the last line, and the write fails': {
    start: worldWith(FOLDER, { 'plants.jsonl': logOf(FERN).slice(0, -1) }),
    path,
    knowledge: knowledgeOf([FERN]),
    async run(process) {
      process.machine.failingWrite = 1;
      await rejects(open(process));
      const log = await open(process);
      await send(process, log, [IVY]);
      await log.close();
    },
  },
  'a log with a tail of zeros is opened': {
    start: worldWith(FOLDER, { 'plants.jsonl': logOf(FERN) + ZEROS }),
    path,
    knowledge: knowledgeOf([FERN], { tails: [ZEROS] }),
    async run(process) {
      const log = await open(process);
      await send(process, log, [IVY]);
      await log.close();
    },
  },
  'a torn tail is to be copied to a full disk': {
    start: worldWith(FOLDER, { 'plants.jsonl': logOf(FERN) + TORN }),
    path,
    knowledge: knowledgeOf([FERN], { tails: [TORN] }),
    async run(process) {
      process.machine.room = 20;
      await rejects(open(process));
      process.machine.room = Infinity;
      const log = await open(process);
      await send(process, log, [IVY]);
      await log.close();
    },
  },
  'a disk is full, and has room again': {
    start: worldWith(FOLDER, { 'plants.jsonl': logOf(FERN) }),
    path,
    knowledge: knowledgeOf([FERN]),
    async run(process) {
      const { machine } = process;
      const log = await open(process);
      machine.room = lineOf(OAK).length + lineOf(IVY).length + 20;
      await send(process, log, [OAK, IVY, MOSS]);
      machine.room = Infinity;
      await send(process, log, [MOSS]);
      await send(process, log, [OAK]);
      await log.close();
    },
  },
  'a write fails': {
    start: worldWith(FOLDER, { 'plants.jsonl': logOf(FERN) }),
    path,
    knowledge: knowledgeOf([FERN]),
    async run(process) {
      const log = await open(process);
      process.machine.failingWrite = 1;
      await send(process, log, [IVY, OAK]);
      await log.close();
    },
  },
  'a disk hangs, and responds again': {
    start: worldWith(FOLDER, { 'plants.jsonl': logOf(FERN) }),
    path,
    knowledge: knowledgeOf([FERN]),
    async run(process) {
      const { machine } = process;
      const log = await open(process);
      machine.hangs = true;
      await send(process, log, [IVY, OAK]);
      ok(!process.knowledge.acknowledged.has(IVY.id), 'they were refused');
      machine.hangs = false;
      await untilAvailable(log);
      await send(process, log, [IVY, MOSS]);
      await log.close();
    },
  },
  'a full disk hangs': {
    start: worldWith(FOLDER, { 'plants.jsonl': logOf(FERN) }),
    path,
    knowledge: knowledgeOf([FERN]),
    async run(process) {
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
    },
  },
  'a damaged log is to be repaired on a full disk': {
    start: worldWith(FOLDER, { 'plants.jsonl': `${logOf(FERN)}x\n` }),
    path,
    knowledge: knowledgeOf([FERN], { damaged: ['x\n'] }),
    async run(process) {
      process.machine.room = 30;
      await rejects(repair(process));
      process.machine.room = Infinity;
      await repair(process);
    },
  },
  'a damaged log is repaired': {
    start: worldWith(FOLDER, { 'plants.jsonl': `${logOf(FERN)}x\n${logOf(IVY)}{"id":3` }),
    path,
    knowledge: knowledgeOf([FERN, IVY], { tails: ['{"id":3'], damaged: ['x\n'] }),
    async run(process) {
      await repair(process);
      const log = await open(process);
      await send(process, log, [MOSS]);
      await log.close();
    },
  },
};
