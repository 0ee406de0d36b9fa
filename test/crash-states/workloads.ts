import { ok, rejects } from 'node:assert/strict';
import { dirname } from 'node:path';

import { createFile } from '../../dist/log/files.js';
import { repairLog } from '../../dist/log/repair.js';
import type { NewPlant } from '../../dist/plant.js';
import { FERN, IVY, MOSS } from '../helpers/plants.js';
import { lineOf, untilAvailable } from '../log/support.js';
import { LOG, open, send, type SimulatedProcess } from './invariants.js';
import { knowledgeOf, type Knowledge } from './knowledge.js';
import { worldWith, type World } from './world.js';

/** What a process does with a log, and the state that it starts from. */
export interface Workload {
  readonly start: World;
  readonly knowledge: Knowledge;
  readonly run: (process: SimulatedProcess) => Promise<unknown>;
  /** What a process does after it has recovered the log from a crash. */
  readonly goOn?: Workload['run'];
  /** Whether the workload needs writes that are durable without `fsync`. */
  readonly needsDsync?: boolean;
}

/** A plant whose line is longer than a sector. */
const OAK: NewPlant = { id: 4n, name: 'oak'.repeat(200) };

const TORN = lineOf(OAK).slice(0, 500);

/**
 * A workload on a log with the lines of some plants, then other bytes: damaged lines, and a torn
 * tail.
 */
export function onLog(plants: readonly NewPlant[], others: string, run: Workload['run']): Workload {
  const start = worldWith(dirname(LOG), plants.map(lineOf).join('') + others);
  return { start, knowledge: knowledgeOf(plants, others), run };
}

/** A workload without a log. Its folder is missing as well. */
export function onNothing(run: Workload['run']): Workload {
  return { start: worldWith(dirname(dirname(LOG))), knowledge: knowledgeOf(), run };
}

/** Opens the log and sends groups of plants, each group at once. */
function storing(...groups: readonly NewPlant[][]): Workload['run'] {
  return async (process) => {
    const log = await open(process);
    for (const plants of groups) await send(process, log, plants);
    await log.close();
  };
}

async function replacing(process: SimulatedProcess): Promise<void> {
  const { machine, knowledge } = process;
  const log = await open(process);
  await send(process, log, [IVY]);
  // The copy that replaces the log is a new file, as after a restore.
  await createFile(machine.fs, { unfinished: `${LOG}.copy`, path: LOG }, async (file) => {
    await file.append(Buffer.from(lineOf(FERN) + lineOf(IVY), 'latin1'));
    return LOG;
  });
  await send(process, log, [MOSS]);
  ok(log.poisoned.aborted && !knowledge.acknowledged.has(MOSS.id), 'it was written to');
  await log.close();
  knowledge.isMarked = true;
}

export const workloads = {
  'a log is created, in a folder of its own': onNothing(storing([FERN], [OAK, IVY, MOSS])),
  'a torn tail is copied, once a full disk has room': onLog([FERN], TORN, async (process) => {
    process.machine.room = 20;
    await rejects(open(process));
    process.machine.room = Infinity;
    await storing([IVY], [OAK])(process);
  }),
  'a last line lacks its newline, and a write fails': {
    ...onLog([FERN, OAK], '', async (process) => {
      process.machine.failsToWrite = true;
      await rejects(open(process));
      await storing([IVY], [MOSS])(process);
    }),
    start: worldWith(dirname(LOG), (lineOf(FERN) + lineOf(OAK)).slice(0, -1)),
  },
  'a disk is full, and has room again': onLog([FERN], '', async (process) => {
    const { machine } = process;
    const log = await open(process);
    machine.room = lineOf(OAK).length + lineOf(IVY).length + 20;
    await send(process, log, [OAK, IVY, MOSS]);
    machine.room = Infinity;
    await send(process, log, [MOSS]);
    await send(process, log, [OAK]);
    await log.close();
  }),
  'a write fails': onLog([FERN], '', async (process) => {
    const log = await open(process);
    process.machine.failsToWrite = true;
    await send(process, log, [IVY, OAK]);
    await log.close();
  }),
  'a full disk hangs, and responds again': onLog([FERN], '', async (process) => {
    const { machine, knowledge } = process;
    const log = await open(process);
    machine.room = lineOf(IVY).length + 20;
    machine.hangs = true;
    await send(process, log, [IVY, OAK]);
    ok(!knowledge.acknowledged.has(IVY.id), 'they were refused');
    await untilAvailable(log);
    machine.hangs = false;
    machine.room = Infinity;
    await send(process, log, [IVY, OAK]);
    await log.close();
  }),
  'a log is replaced by a copy while it is open': onLog([FERN], '', replacing),
  'a log is replaced by a copy while it is open, and fsync is denied': {
    ...onLog([FERN], '', async (process) => {
      process.machine.deniesSync = true;
      await replacing(process);
    }),
    needsDsync: true,
  },
  'a damaged log is repaired, once a full disk has room': onLog(
    [FERN],
    'x\n{"id":9',
    async (process) => {
      const { machine, knowledge } = process;
      machine.room = 30;
      await rejects(repairLog(machine.fs, LOG));
      machine.room = Infinity;
      await repairLog(machine.fs, LOG);
      knowledge.damaged.clear();
      await storing([MOSS])(process);
    },
  ),
} satisfies Record<string, Workload>;
