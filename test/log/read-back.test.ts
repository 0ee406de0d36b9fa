import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';

import t, { type Test } from 'tap';

import { openLog, type PlantLog } from '../../dist/log/log.js';
import type { NewPlant } from '../../dist/plant.js';
import { exactly } from '../exactly.js';
import {
  createGate,
  faultyFileSystem,
  isPending,
  plantsNamed,
  type FaultyFileSystem,
} from './support.js';

const UNAVAILABLE = { name: 'PlantStoreError', code: 'unavailable' };
const [FERN, IVY, MOSS] = plantsNamed('fern', 'ivy', 'moss') as [NewPlant, NewPlant, NewPlant];

interface Opened {
  readonly fs: FaultyFileSystem;
  readonly log: PlantLog;
  readonly reports: string[];
  /** How many lines have been read back. */
  readonly reads: () => number;
}

/** A log that holds the fern and the ivy. */
async function open(t: Test): Promise<Opened> {
  const fs = faultyFileSystem();
  const reports: string[] = [];
  const path = join(t.testdir(), 'plants.jsonl');
  const log = await openLog(fs, path, { report: (message) => reports.push(message) });
  t.teardown(() => log.close());
  await Promise.all([log.add(FERN), log.add(IVY)]);
  return { fs, log, reports, reads: () => fs.operations.filter((kind) => kind === 'read').length };
}

t.test('add rejects if a line cannot be read back, and the log stays usable', async (t) => {
  const { fs, log, reads } = await open(t);
  fs.faults[`read ${reads() + 1}`] = { fails: 'EIO' };
  await t.rejects(log.add(FERN), { ...UNAVAILABLE, message: /EIO/ });
  t.equal(await log.add(FERN), 'unchanged');
  t.equal(await log.add(MOSS), 'created');
  t.notOk(log.poisoned.aborted);
});

t.test('lines are read back one at a time, and before the log is closed', async (t) => {
  const gate = createGate();
  const { fs, log, reads } = await open(t);
  const before = reads();
  fs.faults[`read ${before + 1}`] = { hangs: gate };
  const again = Promise.all([log.add(FERN), log.add(IVY)]);
  const closed = log.close();
  await gate.reached;
  t.equal(reads(), before + 1);
  t.ok(await isPending(closed));
  gate.open();
  t.strictSame(await again, ['unchanged', 'unchanged']);
  t.equal(reads(), before + 2);
  await closed;
});

t.test('while a read hangs, stored plants are refused, and others are stored', async (t) => {
  const gate = createGate();
  const { fs, log, reports, reads } = await open(t);
  const before = reads();
  fs.faults[`read ${before + 1}`] = { hangs: gate };
  const hangs = { ...UNAVAILABLE, message: /: a read has not returned for 10 s$/ };
  const pending = [t.rejects(log.add(FERN), hangs), t.rejects(log.add(IVY), hangs)];
  await gate.reached;
  await fs.expire();
  await Promise.all(pending);
  for (const plant of [FERN, IVY]) await t.rejects(log.add(plant), hangs);
  t.equal(reads(), before + 1, 'no other line is read');
  t.equal(await log.add(MOSS), 'created');
  await log.check();
  await fs.expire();
  const report = /; plants whose id is stored are refused until it does$/;
  t.match(reports, exactly(report), 'it is reported once');

  gate.open();
  await untilUnchanged(log, FERN);
  t.equal(reads(), before + 2, 'the line of the ivy was not read');
  t.equal(await log.add(IVY), 'unchanged');
  t.match(reports, exactly(report, /: the read has returned$/));
  await fs.expire();
  t.equal(reports.length, 2);
});

/** Resolves once a stored plant can be compared. */
async function untilUnchanged(log: PlantLog, plant: NewPlant): Promise<void> {
  const outcome = (): Promise<string> => log.add(plant).catch(() => 'refused');
  while ((await outcome()) !== 'unchanged') await nextTurn();
}

t.test('a read that hangs, then fails, is over', async (t) => {
  const gate = createGate();
  const { fs, log, reports, reads } = await open(t);
  fs.faults[`read ${reads() + 1}`] = { hangs: gate, fails: 'EIO' };
  const refused = t.rejects(log.add(FERN), UNAVAILABLE);
  await gate.reached;
  await fs.expire();
  await refused;
  gate.open();
  await untilUnchanged(log, FERN);
  t.equal(reports.length, 2);
  t.notOk(log.poisoned.aborted);
});

t.test('close waits for a read that hangs', async (t) => {
  const gate = createGate();
  const { fs, log, reads } = await open(t);
  fs.faults[`read ${reads() + 1}`] = { hangs: gate };
  const refused = t.rejects(log.add(FERN), UNAVAILABLE);
  await gate.reached;
  await fs.expire();
  await refused;
  const closed = log.close();
  t.ok(await isPending(closed));
  gate.open();
  await closed;
  t.equal(fs.openFiles, 0);
});
