import { once } from 'node:events';
import {
  appendFileSync,
  existsSync,
  fstatSync,
  ftruncateSync,
  readFileSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';

import t from 'tap';

import { openLog } from '../../dist/log/log.js';
import { encodeRecord } from '../../dist/log/encode.js';
import { MAX_RECORD_BYTES } from '../../dist/log/record.js';
import { nodeSystem, type System } from '../../dist/log/system.js';
import type { NewPlant } from '../../dist/plant.js';
import { exactly } from '../helpers/exactly.js';
import { heldBytes } from '../helpers/memory.js';
import { FERN, IVY, manyPlants, MOSS, REED } from '../helpers/plants.js';
import { collect } from '../helpers/stores.js';
import {
  countOf,
  createGate,
  failNext,
  HANGING,
  hangNext,
  holdNext,
  ignore,
  isPending,
  lineOf,
  logAt,
  logOf,
  openWithFaults,
  UNAVAILABLE,
  untilAvailable,
  type Fault,
} from './support.js';

t.test('plants that arrive during a write are written together in the next one', async (t) => {
  const gate = createGate();
  const { fs, log, content } = await openWithFaults(t, { 'write 1': { hangs: gate } });
  const plants = [FERN, ...manyPlants(100).filter(({ id }) => id !== FERN.id)];
  const first = log.add(FERN);
  await gate.reached;
  const others = plants.slice(1).map((plant) => log.add(plant));
  t.ok(await isPending(Promise.any(others)), 'no plant is acknowledged before its write');
  t.equal(countOf(fs, 'write'), 1);
  gate.open();
  await Promise.all([first, ...others]);
  t.equal(countOf(fs, 'write'), 2);
  t.equal(content(), logOf(plants).toString());
  const again = await Promise.all(plants.map((plant) => log.add(plant)));
  t.ok(
    again.every((outcome) => outcome === 'unchanged'),
    'each is found at its offset',
  );
});

t.test('plants that are added in the same tick are written together', async (t) => {
  const { fs, log } = await openWithFaults(t);
  await Promise.all(manyPlants(50).map((plant) => log.add(plant)));
  t.equal(countOf(fs, 'write'), 1);
  for (const id of [-1n, -2n]) await log.add({ id, name: '' });
  t.equal(countOf(fs, 'write'), 3, 'sequential plants do not wait for each other');
});

t.test('the buffer of a batch is not reused before its write has returned', async (t) => {
  const gate = createGate();
  const { log, content } = await openWithFaults(t, {
    'write 2': { hangs: gate },
  });
  await log.add(REED);
  const fern = log.add(FERN);
  await gate.reached;
  const others = [IVY, MOSS].map((plant) => log.add(plant));
  gate.open();
  await Promise.all([fern, ...others]);
  await log.add({ id: -1n, name: '' });
  t.equal(content(), logOf([REED, FERN, IVY, MOSS, { id: -1n, name: '' }]).toString());
});

t.test('the buffer of a large plant is released', async (t) => {
  const { log } = await openWithFaults(t);
  await log.add(FERN);
  // Without what earlier tests have left to be collected.
  const expected = (await heldBytes()) + 1_048_576;
  await log.add({ ...IVY, name: 'x'.repeat(16_777_216) });
  t.ok((await heldBytes()) <= expected, 'less than 1 of 16 MiB is held');
});

t.test('a plant is found while it is pending, whichever batch it is in', async (t) => {
  const gate = createGate();
  const { log, content } = await openWithFaults(t, { 'write 1': { hangs: gate } });
  const filling = { ...IVY, name: 'x'.repeat(4_194_304) };
  const fern = log.add(FERN);
  await gate.reached;
  const plants = [FERN, filling, MOSS];
  const added = [fern, log.add(filling), log.add(MOSS)];
  const again = plants.map((plant) => log.add(plant));
  const conflicts = plants.map((plant) =>
    t.rejects(log.add({ ...plant, tag: 'another' }), { code: 'conflict' }),
  );
  gate.open();
  t.strictSame(await Promise.all(added), ['created', 'created', 'created']);
  t.strictSame(await Promise.all(again), ['unchanged', 'unchanged', 'unchanged']);
  await Promise.all(conflicts);
  t.equal(content(), logOf(plants).toString());
});

t.test('plants that wait for a write without room are tried in the next write', async (t) => {
  const gate = createGate();
  const { log, content } = await openWithFaults(t, {
    'write 1': { fails: 'ENOSPC' },
    'write 2': { hangs: gate },
  });
  // This plant alone is larger than a batch.
  const large = { ...FERN, name: 'x'.repeat(4_194_304) };
  const refused = [large, large].map((plant) => t.rejects(log.add(plant), UNAVAILABLE));
  const ivy = log.add(IVY);
  await Promise.all(refused);
  await gate.reached;
  const again = log.add(FERN);
  gate.open();
  t.strictSame(await Promise.all([again, ivy]), ['created', 'created']);
  t.equal(content(), logOf([IVY, FERN]).toString());
});

const FULL_REPORT = /; plants are refused until there is room$/;
const ROOM_REPORT = /: there is room again$/;

for (const code of ['ENOSPC', 'EDQUOT', 'EFBIG'])
  t.test(`${code}: plants are refused only as long as the disk is full`, async (t) => {
    const { fs, log, reports, content } = await openWithFaults(t, {
      'write 2': { fails: code },
      // There is room for one line, and for a part of the other.
      'write 3': { writes: lineOf(IVY).length + 5 },
      'write 4': { fails: code },
    });
    await log.add(FERN);
    await t.rejects(log.add(IVY), { ...UNAVAILABLE, message: new RegExp(code) });
    t.equal(content(), encodeRecord(FERN));
    const batch = [IVY, MOSS].map((plant) => t.rejects(log.add(plant), UNAVAILABLE));
    await Promise.all(batch);
    t.equal(content(), encodeRecord(FERN), 'a batch fails as a whole');
    t.equal(await log.add(FERN), 'unchanged', 'stored plants are still known');
    t.match(reports, exactly(FULL_REPORT), 'it is reported once');
    await log.check();

    t.equal(await log.add(IVY), 'created');
    t.equal(await log.add(MOSS), 'created');
    t.match(reports, exactly(FULL_REPORT, ROOM_REPORT));
    t.equal(content(), logOf([FERN, IVY, MOSS]).toString());

    failNext(fs, 'write', { fails: code });
    await t.rejects(log.add(REED), UNAVAILABLE);
    await log.add(REED);
    t.match(reports.slice(2), exactly(FULL_REPORT, ROOM_REPORT), 'the next time, too');
    t.notOk(log.poisoned.aborted);
  });

const POISON_REPORT = /; no plant is stored until the log is opened again$/;

t.test('too many reports of a full disk hide no other report', async (t) => {
  const { fs, log, reports } = await openWithFaults(t);
  for (const plant of manyPlants(6)) {
    failNext(fs, 'write', { fails: 'ENOSPC' });
    await t.rejects(log.add(plant), UNAVAILABLE);
    await log.add(plant);
  }
  t.equal(reports.splice(0).length, 10);
  failNext(fs, 'write', { fails: 'EIO' });
  await t.rejects(log.add(REED), UNAVAILABLE);
  t.match(reports, exactly(POISON_REPORT));
});

t.test('a disk that is full again and again is reported at most 10 times in 10 s', async (t) => {
  let now = 0;
  t.intercept(performance, 'now', { value: () => now });
  const { fs, log, reports } = await openWithFaults(t);
  for (const plant of manyPlants(9)) {
    failNext(fs, 'write', { fails: 'ENOSPC' });
    await t.rejects(log.add(plant), UNAVAILABLE);
    await log.add(plant);
    now += 1_250;
  }
  t.match(reports.splice(0).slice(10), exactly('dropped 6 more reports', FULL_REPORT, ROOM_REPORT));
});

const PARTIAL = { writes: 9, fails: 'ENOSPC' };
/** Faults of the next operation of each kind. */
const poisons: Record<string, Readonly<Record<string, Fault>>> = {
  'a write that fails': { write: { fails: 'EIO' } },
  'a write of 0 bytes': { write: { writes: 0 } },
  'a read after a failed write that fails': { write: PARTIAL, read: { fails: 'EIO' } },
  'a truncation that fails': { write: PARTIAL, ftruncate: { fails: 'EIO' } },
  'a truncation that fails with ENOSPC': { write: PARTIAL, ftruncate: { fails: 'ENOSPC' } },
  'a truncation that cannot be synced': { write: PARTIAL, fsync: { fails: 'EIO' } },
};

for (const [what, { write, ...later }] of Object.entries(poisons))
  t.test(`${what} poisons the log permanently`, async (t) => {
    const { fs, log, path, reports, content } = await openWithFaults(t);
    let aborted = 0;
    log.poisoned.addEventListener('abort', () => aborted++);
    await log.add(FERN);
    const gate = holdNext(fs, 'write', write);
    for (const [kind, fault] of Object.entries(later)) failNext(fs, kind, fault);
    const ivy = t.rejects(log.add(IVY), UNAVAILABLE);
    await gate.reached;
    const moss = t.rejects(log.add(MOSS), UNAVAILABLE, 'a queued plant is refused');
    gate.open();
    await Promise.all([ivy, moss]);
    const left = content();
    const tried = fs.operations.length;
    for (const plant of [FERN, IVY, MOSS]) await t.rejects(log.add(plant), UNAVAILABLE);
    t.equal(fs.operations.length, tried, 'no write is retried');
    t.equal(aborted, 1);
    t.match(log.poisoned.reason, { ...UNAVAILABLE, cause: Error });
    t.match(reports, exactly(POISON_REPORT), 'it is reported once');
    await log.close();
    await t.rejects(log.check(), log.poisoned.reason as Error, 'the reason is kept');
    t.equal(content(), left);
    t.notOk(existsSync(`${path}.modified`), 'what it has left is no modification');
    t.ok(left.startsWith(encodeRecord(FERN)), 'all acknowledged plants are there');
    t.equal(fs.openFiles, 0);
  });

/** Writes of FERN's line that fail after they have written nothing, a part of it or all of it. */
const failedWrites: Record<string, Fault> = {
  'nothing, for lack of room': { fails: 'ENOSPC' },
  'a part, for another reason': { writes: 9, fails: 'EIO' },
  'everything, but not to the disk': { writes: Infinity, fails: 'EIO' },
};
/** A line that has the length and the beginning of FERN's line. */
const OTHER_LINE = encodeRecord(FERN).replace('fern', 'reed');

for (const [what, fault] of Object.entries(failedWrites))
  for (const order of ['before', 'after'])
    t.test(
      `a write that fails and leaves ${what}: a line of another process ${order} it is not cut off`,
      async (t) => {
        const { fs, log, path, content } = await openWithFaults(t);
        // After a write has failed, the log reads what the write has left.
        if (order === 'after') failNext(fs, 'write', fault);
        const gate = order === 'after' ? holdNext(fs, 'read') : holdNext(fs, 'write', fault);
        const refused = t.rejects(log.add(FERN), { ...UNAVAILABLE, message: /modified/ });
        await gate.reached;
        appendFileSync(path, OTHER_LINE);
        gate.open();
        await refused;
        t.ok(log.poisoned.aborted);
        const left = encodeRecord(FERN).slice(0, fault.writes ?? 0);
        t.equal(content(), order === 'after' ? left + OTHER_LINE : OTHER_LINE + left);
        // Waits until the log is marked.
        await log.close();
      },
    );

t.test(
  'a plant is not acknowledged if another process has appended during its write',
  async (t) => {
    const { fs, log, path, content } = await openWithFaults(t);
    const gate = holdNext(fs, 'write');
    const refused = t.rejects(log.add(FERN), { ...UNAVAILABLE, message: /modified/ });
    await gate.reached;
    // This line has no newline, so that it damages the line after it.
    appendFileSync(path, '{"id":8');
    gate.open();
    await refused;
    t.equal(content(), `{"id":8${encodeRecord(FERN)}`);
    await log.close();
    t.ok(existsSync(`${path}.modified`));
  },
);

t.test('nothing is written after what was appended while a failed write was cut off', async (t) => {
  const { fs, log, path, content } = await openWithFaults(t);
  const write = holdNext(fs, 'write', { writes: 9, fails: 'ENOSPC' });
  const cut = holdNext(fs, 'fsync');
  const refused = [t.rejects(log.add(FERN), UNAVAILABLE)];
  await write.reached;
  refused.push(t.rejects(log.add(IVY), { ...UNAVAILABLE, message: /modified/ }));
  write.open();
  await cut.reached;
  appendFileSync(path, '{"id":8');
  cut.open();
  await Promise.all(refused);
  t.equal(content(), '{"id":8');
  await log.close();
  t.ok(existsSync(`${path}.modified`));
});

const HANG_REPORT = /: a write has not returned for 10 s; plants are refused until it does$/;
const RETURN_REPORT = /: the write has returned; plants are stored again$/;

t.test('while a write hangs, plants are refused; its own are stored in the end', async (t) => {
  // The fake timers of a test runner replace `setImmediate` in this way.
  t.intercept(globalThis, 'setImmediate', { value: () => undefined });
  const { fs, log, reports, content } = await openWithFaults(t);
  await log.add(FERN);
  await fs.expire();
  const gate = holdNext(fs, 'write');
  const written = [log.add(IVY)];
  await gate.reached;
  const pending = Promise.allSettled([...written, log.add(IVY), log.add(MOSS)]);
  t.ok(await isPending(pending), 'the plants wait');
  await fs.expire(9_999);
  await log.check();
  await fs.expire();
  const refused = exactly(...Array.from({ length: 3 }, () => ({ reason: HANGING })));
  t.match(await pending, refused, 'both the plants of the write and the plants that wait');

  const performed = fs.operations.length;
  for (const plant of [FERN, IVY, MOSS]) await t.rejects(log.add(plant), HANGING);
  await t.rejects(log.check(), HANGING);
  await fs.expire();
  t.equal(fs.operations.length, performed, 'no operation follows');
  t.match(reports, exactly(HANG_REPORT), 'it is reported once');
  t.equal(log.size, 1);

  gate.open();
  await untilAvailable(log);
  t.match(reports, exactly(HANG_REPORT, RETURN_REPORT));
  t.equal(log.size, 2);
  t.equal(await log.add(IVY), 'unchanged', 'a retry finds the plant');
  t.equal(
    content(),
    logOf([FERN, IVY]).toString(),
    'the plants that waited for the write were not written',
  );
  t.equal(await log.add(MOSS), 'created');
  t.equal(content(), logOf([FERN, IVY, MOSS]).toString());
  t.notOk(log.poisoned.aborted);
});

t.test('each write has 10 s of its own, also one that follows another at once', async (t) => {
  const { fs, log, reports } = await openWithFaults(t);
  const [first, second] = [createGate(), createGate()];
  Object.assign(fs.faults, { 'write 1': { hangs: first }, 'write 2': { hangs: second } });
  const fern = log.add(FERN);
  await first.reached;
  const ivy = log.add(IVY);
  await fs.expire(9_999);
  first.open();
  await fern;
  await second.reached;
  await fs.expire(9_999);
  await log.check();
  second.open();
  t.equal(await ivy, 'created');
  t.strictSame(reports, []);
});

t.test('the truncation after a failed write has what is left of the 10 s', async (t) => {
  const { fs, log, reports, content } = await openWithFaults(t);
  const written = holdNext(fs, 'write', { writes: 9, fails: 'ENOSPC' });
  const syncAfterCut = holdNext(fs, 'fsync');
  const refused = t.rejects(log.add(FERN), HANGING);
  await written.reached;
  await fs.expire(9_000);
  written.open();
  await syncAfterCut.reached;
  await fs.expire(1_000);
  if (await isPending(refused)) throw new Error('the plant still waits after 10 s');
  await t.rejects(log.check(), HANGING);
  syncAfterCut.open();
  await untilAvailable(log);
  t.equal(await log.add(FERN), 'created');
  t.equal(content(), encodeRecord(FERN));
  t.match(reports[0], HANG_REPORT);
});

t.test('a full disk that hangs is reported as full again when it returns', async (t) => {
  const opened = await openWithFaults(t, { 'write 1': { fails: 'ENOSPC' } });
  const { log, reports, content } = opened;
  await t.rejects(log.add(FERN), UNAVAILABLE);
  const gate = await hangNext(t, opened, 'write', [FERN], { writes: 9, fails: 'ENOSPC' });
  gate.open();
  await untilAvailable(log);
  t.equal(content(), '');
  t.equal(await log.add(FERN), 'created');
  t.match(reports, exactly(FULL_REPORT, HANG_REPORT, FULL_REPORT, ROOM_REPORT));
});

t.test('a write that hangs, then fails, poisons the log', async (t) => {
  const opened = await openWithFaults(t);
  const { log, reports, content } = opened;
  const gate = await hangNext(t, opened, 'write', [FERN], { fails: 'EIO' });
  const poisoned = once(log.poisoned, 'abort');
  gate.open();
  await poisoned;
  await t.rejects(log.check(), { ...UNAVAILABLE, message: /EIO/ });
  await t.rejects(log.add(FERN), { ...UNAVAILABLE, message: /EIO/ });
  t.match(reports, exactly(HANG_REPORT, POISON_REPORT));
  t.equal(content(), '');
});

t.test('a log that is poisoned while a write hangs stays poisoned when it returns', async (t) => {
  const opened = await openWithFaults(t);
  const { fs, log, path, reports, content } = opened;
  await log.add(FERN);
  const compared = holdNext(fs, 'read');
  const modified = t.rejects(log.add(FERN), { ...UNAVAILABLE, message: /was modified/ });
  const written = await hangNext(t, opened, 'write', [IVY]);
  const changed = content().replace('"id":7', '"id":1');
  writeFileSync(path, changed);
  compared.open();
  await modified;
  t.ok(log.poisoned.aborted);
  written.open();
  await log.close();
  t.equal(log.size, 2, 'the plant of the write is stored');
  t.equal(content(), changed + encodeRecord(IVY));
  t.notOk(
    reports.some((message) => message.includes('stored again')),
    'but no others',
  );
  await t.rejects(log.check(), { ...UNAVAILABLE, message: /was modified/ });
});

t.test('a plant is not acknowledged if the log is poisoned during its write', async (t) => {
  const { fs, log, path, content } = await openWithFaults(t);
  await log.add(FERN);
  const gate = holdNext(fs, 'write');
  const written = t.rejects(log.add(IVY), { ...UNAVAILABLE, message: /was modified/ });
  await gate.reached;
  writeFileSync(path, content().replace('"id":7', '"id":1'));
  await t.rejects(log.add(FERN), UNAVAILABLE);
  gate.open();
  await written;
  // Waits until the log is marked.
  await log.close();
});

t.test('what a failed write has left is not cut off from a poisoned log', async (t) => {
  const { fs, log, path, content } = await openWithFaults(t);
  await log.add(FERN);
  const gate = holdNext(fs, 'write', { writes: 9, fails: 'ENOSPC' });
  const written = t.rejects(log.add(IVY), { ...UNAVAILABLE, message: /was modified/ });
  await gate.reached;
  const changed = content().replace('"id":7', '"id":1');
  writeFileSync(path, changed);
  await t.rejects(log.add(FERN), UNAVAILABLE);
  gate.open();
  await written;
  await log.close();
  t.equal(content(), changed + lineOf(IVY).slice(0, 9));
});

t.test(
  'a log that is poisoned is marked, too, if its file is emptied before it is closed',
  async (t) => {
    const { fs, log, path } = await openWithFaults(t);
    await log.add(FERN);
    failNext(fs, 'write', { fails: 'EIO' });
    await t.rejects(log.add(IVY), UNAVAILABLE);
    truncateSync(path);
    await log.close();
    t.ok(existsSync(`${path}.modified`));
  },
);

t.test('while a write hangs, plants are read, and close waits for the write', async (t) => {
  const opened = await openWithFaults(t);
  const { fs, log, content } = opened;
  await log.add(FERN);
  const gate = await hangNext(t, opened, 'write', [IVY]);
  t.strictSame(await collect(log.plants()), [FERN]);
  const closed = log.close();
  t.ok(await isPending(closed));
  gate.open();
  await closed;
  t.equal(content(), logOf([FERN, IVY]).toString());
  t.equal(fs.openFiles, 0);
});

/**
 * A plant whose line has this many bytes, if its checksum has ten digits. Most characters of its
 * name take two bytes.
 */
function plantOfLine(id: bigint, bytes: number): NewPlant {
  const rest = bytes - '{"id":1,"name":"","crc32":1234567890}\n'.length;
  return { id, name: '\u00e9'.repeat(rest / 2) + 'x'.repeat(rest % 2) };
}

t.test('a line may have the length limit of a record, but not one byte more', async (t) => {
  const system: System = {
    ...nodeSystem,
    // The disk need not keep a line of 128 MiB: the file only grows by a hole.
    async write(descriptor, bytes) {
      if (bytes.length < MAX_RECORD_BYTES) return nodeSystem.write(descriptor, bytes);
      ftruncateSync(descriptor, fstatSync(descriptor).size + bytes.length);
      return bytes.length;
    },
  };
  const log = await openLog(system, logAt(t), { report: ignore });
  const tooLong = plantOfLine(2n, MAX_RECORD_BYTES + 1);
  const before = log.add(IVY);
  await t.rejects(log.add(tooLong), new RangeError('the plant is too large'));
  t.equal(await before, 'created');
  t.equal(readFileSync(log.path, 'utf8'), encodeRecord(IVY), 'nothing else is in their batch');
  t.equal(await log.add({ ...tooLong, name: 'fern' }), 'created', 'its id can be used');
  const { bytes } = log;
  t.equal(await log.add(plantOfLine(1n, MAX_RECORD_BYTES)), 'created');
  t.equal(log.bytes - bytes, MAX_RECORD_BYTES);
  await log.close();
});

t.test('a batch is full at 4 MiB, and plants are written in the order of arrival', async (t) => {
  const { fs, log, content } = await openWithFaults(t);
  const plants = manyPlants(6, 'x'.repeat(1_500_000));
  await Promise.all(plants.map((plant) => log.add(plant)));
  t.equal(countOf(fs, 'write'), 2, 'three of them are more than 4 MiB');
  t.ok(content() === logOf(plants).toString());
});
