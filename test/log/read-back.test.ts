import { setImmediate as nextTurn } from 'node:timers/promises';

import t, { type Test } from 'tap';

import type { PlantLog } from '../../dist/log/log.js';
import type { NewPlant } from '../../dist/plant.js';
import type { PlantStoreError } from '../../dist/store.js';
import { exactly } from '../exactly.js';
import {
  countOf,
  failNext,
  FERN,
  hangNext,
  holdNext,
  isPending,
  IVY,
  logOf,
  MOSS,
  openWithFaults,
  UNAVAILABLE,
  type OpenedLog,
} from './support.js';

/** Opens a log that holds the fern and the ivy. */
function open(t: Test): Promise<OpenedLog> {
  return openWithFaults(t, {}, { content: logOf([FERN, IVY]) });
}

t.test('add rejects if a line cannot be read back, and the log stays usable', async (t) => {
  const { fs, log } = await open(t);
  failNext(fs, 'read', { fails: 'EIO' });
  await t.rejects(log.add(FERN), { ...UNAVAILABLE, message: /EIO/ });
  t.equal(await log.add(FERN), 'unchanged');
  t.equal(await log.add(MOSS), 'created');
  t.notOk(log.poisoned.aborted);
});

t.test('lines are read back one at a time, and before the log is closed', async (t) => {
  const { fs, log } = await open(t);
  const before = countOf(fs, 'read');
  const gate = holdNext(fs, 'read');
  const again = Promise.all([log.add(FERN), log.add(IVY)]);
  const closed = log.close();
  await gate.reached;
  t.equal(countOf(fs, 'read'), before + 1);
  t.ok(await isPending(closed));
  gate.open();
  t.strictSame(await again, ['unchanged', 'unchanged']);
  t.equal(countOf(fs, 'read'), before + 2);
  await closed;
});

t.test(
  'plants with one stored id that arrive together are compared with one reading',
  async (t) => {
    const { fs, log } = await open(t);
    const before = countOf(fs, 'read');
    const other = { ...FERN, name: 'moss' };
    const refusal = ({ code }: PlantStoreError): string => code;
    const outcomes = [FERN, other, FERN, IVY].map((plant) => log.add(plant).catch(refusal));
    t.strictSame(await Promise.all(outcomes), ['unchanged', 'conflict', 'unchanged', 'unchanged']);
    t.equal(countOf(fs, 'read'), before + 2);
    t.equal(await log.add(FERN), 'unchanged');
    t.equal(countOf(fs, 'read'), before + 3, 'it is read again');
  },
);

const HANG_REPORT =
  /: a read has not .* 10 s; plants whose id is stored are refused until it does$/;

t.test('while a read hangs, stored plants are refused, and others are stored', async (t) => {
  const opened = await open(t);
  const { fs, log, reports } = opened;
  const before = countOf(fs, 'read');
  const gate = await hangNext(t, opened, 'read', [FERN, IVY]);
  const error = { ...UNAVAILABLE, message: /: a read has not returned for 10 s$/ };
  for (const plant of [FERN, IVY]) await t.rejects(log.add(plant), error);
  t.equal(countOf(fs, 'read'), before + 1, 'no other line is read');
  t.equal(await log.add(MOSS), 'created');
  await log.check();
  await fs.expire();
  t.match(reports, exactly(HANG_REPORT), 'it is reported once');

  gate.open();
  await untilUnchanged(log, FERN);
  t.equal(countOf(fs, 'read'), before + 2, 'the line of the ivy was not read');
  t.equal(await log.add(IVY), 'unchanged');
  t.match(reports, exactly(HANG_REPORT, /: the read has returned$/));
  await fs.expire();
  t.equal(reports.length, 2);
});

/** Resolves once a stored plant can be compared. */
async function untilUnchanged(log: PlantLog, plant: NewPlant): Promise<void> {
  const outcome = (): Promise<string> => log.add(plant).catch(() => 'refused');
  while ((await outcome()) !== 'unchanged') await nextTurn();
}

t.test('a read that hangs, then fails, is over', async (t) => {
  const opened = await open(t);
  const gate = await hangNext(t, opened, 'read', [FERN], { fails: 'EIO' });
  gate.open();
  await untilUnchanged(opened.log, FERN);
  t.equal(opened.reports.length, 2);
  t.notOk(opened.log.poisoned.aborted);
});

t.test('close waits for a read that hangs', async (t) => {
  const opened = await open(t);
  const gate = await hangNext(t, opened, 'read', [FERN]);
  const closed = opened.log.close();
  t.ok(await isPending(closed));
  gate.open();
  await closed;
  t.equal(opened.fs.openFiles, 0);
});
