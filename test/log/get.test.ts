import { existsSync, rmSync, truncateSync, writeFileSync } from 'node:fs';

import t from 'tap';

import type { OpenFile } from '../../dist/log/files.js';
import { lineAt } from '../../dist/log/lines.js';
import { openPlantLog } from '../../dist/log/log.js';
import { MAX_RECORD_BYTES } from '../../dist/log/record.js';
import { MAX_ID, MIN_ID, type NewPlant } from '../../dist/plant.js';
import { FERN, IVY, MOSS, REED } from '../helpers/plants.js';
import { collect } from '../helpers/stores.js';
import {
  failNext,
  hangNext,
  holdNext,
  isPending,
  lineOf,
  logAt,
  logOf,
  memoryFile,
  openWithFaults,
  signed,
  UNAVAILABLE,
} from './support.js';

const STORED = logOf([MOSS, IVY]);

/** Lines around the lengths that are read in one step. One of them ends where a read ends. */
const LONG = [1_023, 1_024, 1_025, 2_048, 5_000, 3_000_000].map((bytes, n): NewPlant => {
  const plant = { id: BigInt(100 + n), name: '' };
  return { ...plant, name: 'x'.repeat(bytes - lineOf(plant).length) };
});
const PLANTS: readonly NewPlant[] = [
  { id: MIN_ID, name: '' },
  { id: MAX_ID, name: 'max', tag: '' },
  { id: 2n ** 53n + 1n, name: 'no double' },
  { id: 0n, name: 'a "quoted" \\ name\n', tag: '\0' },
  { id: -1n, name: '\ud800 and \udfff', tag: '\u{1f33f}' },
  ...LONG,
];

t.test(
  'get returns a plant exactly as it was stored, also after the log is reopened',
  async (t) => {
    const path = logAt(t);
    for (const isReopened of [false, true]) {
      const log = await openPlantLog(path);
      if (!isReopened) for (const plant of PLANTS) await log.add(plant);
      for (const plant of PLANTS) t.strictSame(await log.get(plant.id), plant);
      for (const id of [1n, MIN_ID + 1n, MAX_ID - 1n]) t.equal(await log.get(id), undefined);
      await log.close();
    }
  },
);

t.test('get takes only an int64, even if the log is closed', async (t) => {
  const log = await openPlantLog(logAt(t, STORED));
  for (const state of ['open', 'closed']) {
    for (const id of [7, '7', undefined, null, {}])
      await t.rejects(
        log.get(id as never),
        new TypeError('id: must be a bigint, such as 5n'),
        state,
      );
    for (const id of [MAX_ID + 1n, MIN_ID - 1n]) await t.rejects(log.get(id), RangeError, state);
    await log.close();
  }
  await t.rejects(log.get(MOSS.id), { ...UNAVAILABLE, message: /: the log is closed$/ });
});

t.test(
  'get returns a pending plant once it is durable, and rejects if it is not stored',
  async (t) => {
    const { fs, log } = await openWithFaults(t);
    const written = holdNext(fs, 'write');
    const added = log.add(FERN);
    await written.reached;
    const refused = t.rejects(log.add(IVY), UNAVAILABLE);
    const [fern, ivy] = [log.get(FERN.id), t.rejects(log.get(IVY.id), /ENOSPC/)];
    t.ok(await isPending(fern));
    failNext(fs, 'write', { fails: 'ENOSPC' });
    written.open();
    t.equal(await added, 'created');
    t.strictSame(await fern, FERN);
    await Promise.all([refused, ivy]);
    t.equal(await log.get(IVY.id), undefined);
  },
);

t.test(
  'while a write hangs, get returns what is stored, and rejects for what is pending',
  async (t) => {
    const opened = await openWithFaults(t, {}, { content: STORED });
    const { log } = opened;
    const gate = await hangNext(t, opened, 'write', [FERN, REED]);
    t.strictSame(await log.get(MOSS.id), MOSS);
    await t.rejects(log.get(FERN.id), { ...UNAVAILABLE, message: /has not returned for 10 s$/ });
    gate.open();
  },
);

t.test('get reads nothing from a log that is poisoned', async (t) => {
  const { fs, log } = await openWithFaults(t, { 'write 1': { fails: 'EIO' } }, { content: STORED });
  await t.rejects(log.add(FERN), UNAVAILABLE);
  const performed = fs.operations.length;
  for (const id of [MOSS.id, FERN.id, 1n]) await t.rejects(log.get(id), /EIO/);
  t.equal(fs.operations.length, performed);
});

t.test('a failed read does not poison the log', async (t) => {
  const { fs, log } = await openWithFaults(t, {}, { content: STORED });
  failNext(fs, 'read', { fails: 'EIO' });
  await t.rejects(log.get(MOSS.id), { ...UNAVAILABLE, message: /EIO/ });
  t.strictSame(await log.get(MOSS.id), MOSS);
});

t.test('get rejects with "the log is closed" if it is closed during the read', async (t) => {
  const { fs, log } = await openWithFaults(t, {}, { content: STORED });
  const read = holdNext(fs, 'read', { fails: 'EIO' });
  const refused = t.rejects(log.get(MOSS.id), /: the log is closed$/);
  await read.reached;
  const closed = log.close();
  read.open();
  await refused;
  await closed;
});

/** What another process may do to the line of MOSS, and the error with which `get` then rejects. */
const MODIFICATIONS: Record<string, [change: (text: string) => string, message: RegExp]> = {
  'a changed name': [
    (text) => text.replace('moss', 'boss'),
    /: the line at byte 0: crc32: does not match the plant$/,
  ],
  'no JSON': [(text) => text.replace('"name"', '"name '), /: the line at byte 0: body: must be/],
  'an escape in capital letters': [
    (text) => text.replace('\\ud800', '\\uD800'),
    /: the line at byte 0: it holds a plant, but has other spaces, escapes/,
  ],
};

for (const [what, [change, message]] of Object.entries(MODIFICATIONS))
  t.test(`get rejects with "damaged" if its line was changed: ${what}`, async (t) => {
    const { log, path } = await openWithFaults(t, {}, { content: STORED });
    writeFileSync(path, change(String(STORED)));
    await t.rejects(log.get(MOSS.id), { code: 'damaged', message });
    t.notOk(log.poisoned.aborted, 'the next start finds the damage');
    t.strictSame(await log.get(IVY.id), IVY);
  });

t.test('get and plants reject with "unavailable" at a line of a newer version', async (t) => {
  const newer = signed('{"id":9,"name":"moss","light":"shade"');
  const name = 'moss'.padEnd(newer.length - lineOf({ id: 9n, name: '' }).length, 's');
  const path = logAt(t, logOf([{ id: 9n, name }]));
  const log = await openPlantLog(path);
  writeFileSync(path, newer);
  const message = 'a newer version of plant-store has written it; use that version';
  await t.rejects(log.get(9n), {
    ...UNAVAILABLE,
    message: `${path}: the line at byte 0: ${message}`,
  });
  await t.rejects(collect(log.plants()), {
    ...UNAVAILABLE,
    message: `${path}: line 1, at byte 0: ${message}`,
  });
  await log.close();
});

/** Ids that another process may have given to the line of MOSS, whose length stays the same. */
const OTHER_IDS: Record<string, readonly [from: string, to: string]> = {
  'an id of the same length': ['{"id":9,', '{"id":1,'],
  'an id that begins with the same digit': ['{"id":9,"name":"moss', '{"id":91,"name":"mos'],
};

for (const [what, [from, to]] of Object.entries(OTHER_IDS))
  for (const reader of ['get', 'add'] as const)
    t.test(`${reader} poisons and marks a log whose line was given ${what}`, async (t) => {
      const { log, path } = await openWithFaults(t, {}, { content: STORED });
      writeFileSync(path, String(STORED).replace(from, to));
      const reading: Promise<unknown> = reader === 'get' ? log.get(MOSS.id) : log.add(MOSS);
      await t.rejects(reading, { ...UNAVAILABLE, message: /: the line at byte 0 was modified/ });
      t.ok(log.poisoned.aborted);
      await log.close();
      t.ok(existsSync(`${path}.modified`));
    });

const LOSSES: Record<string, (path: string) => void> = {
  truncated: (path) => truncateSync(path, STORED.length - 1),
  removed: (path) => rmSync(path),
};

for (const [what, change] of Object.entries(LOSSES))
  for (const reader of ['get', 'plants'] as const)
    t.test(`${reader} poisons and marks a log that was ${what}`, async (t) => {
      const { log, path } = await openWithFaults(t, {}, { content: STORED });
      change(path);
      const reading: Promise<unknown> = reader === 'get' ? log.get(IVY.id) : collect(log.plants());
      if (reader === 'plants' && what === 'removed') {
        // The stored plants can still be read. Only the next write notices the loss.
        t.strictSame(await reading, [MOSS, IVY]);
        return;
      }
      await t.rejects(reading, { ...UNAVAILABLE, message: /: the file was modified/ });
      await log.close();
      t.ok(existsSync(`${path}.modified`));
    });

t.test('a line is read whole, however few bytes each read returns', async (t) => {
  for (const maxBytesRead of [1, 7, Infinity]) {
    const file = memoryFile(STORED, maxBytesRead);
    const second = lineOf(MOSS).length;
    t.equal((await lineAt(file, 0, STORED.length)).toString('latin1'), lineOf(MOSS));
    t.equal((await lineAt(file, second, STORED.length)).toString('latin1'), lineOf(IVY));
    const cut = await lineAt(file, second, second + 9);
    t.equal(cut.toString('latin1'), lineOf(IVY).slice(0, 9), 'no more than up to the end');
  }
});

t.test('no more of a line is read than the longest record has', async (t) => {
  let total = 0;
  const read: OpenFile['read'] = async (buffer) => {
    total += buffer.length;
    return buffer.fill('x').length;
  };
  const endless = { ...memoryFile(STORED), read };
  await t.rejects(lineAt(endless, 5, Infinity), /the line at byte 5 is longer than any record/);
  t.equal(total, MAX_RECORD_BYTES);
});
