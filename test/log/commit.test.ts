import { AsyncLocalStorage } from 'node:async_hooks';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { createCommitter, type Committer } from '../../dist/log/commit.js';
import { nodeFileSystem, type LogFile } from '../../dist/log/file.js';
import { openLog, type PlantLog } from '../../dist/log/log.js';
import { encodeRecord, MAX_RECORD_BYTES } from '../../dist/log/record.js';
import type { NewPlant } from '../../dist/plant.js';
import { run } from '../command.js';
import { exactly } from '../exactly.js';
import {
  createGate,
  faultyFileSystem,
  isPending,
  logOf,
  plantsNamed,
  type Faults,
  type FaultyFileSystem,
} from './support.js';

const UNAVAILABLE = { name: 'PlantStoreError', code: 'unavailable' };
const [FERN, IVY, MOSS] = plantsNamed('fern', 'ivy', 'moss') as [NewPlant, NewPlant, NewPlant];

interface Opened {
  readonly fs: FaultyFileSystem;
  readonly path: string;
  readonly log: PlantLog;
  readonly reports: string[];
  readonly content: () => string;
}

/** A new log, on a file system with faults. */
async function open(
  t: Test,
  faults: Faults,
  options?: { dsyncIsDurable: boolean },
): Promise<Opened> {
  const path = join(t.testdir(), 'plants.jsonl');
  const fs = faultyFileSystem(faults, options);
  const reports: string[] = [];
  const log = await openLog(fs, path, { report: (message) => reports.push(message) });
  t.teardown(() => log.close());
  return { fs, path, log, reports, content: () => readFileSync(path, 'utf8') };
}

function countOf(fs: FaultyFileSystem, kind: string): number {
  return fs.operations.filter((each) => each === kind).length;
}

t.test('plants that arrive during a write are written together in the next one', async (t) => {
  const gate = createGate();
  const { fs, log, content } = await open(t, { 'write 1': { hangs: gate } });
  const first = log.add(FERN);
  await gate.reached;
  const names = Array.from({ length: 99 }, (_, n) => `plant ${n}`);
  const rest = plantsNamed('fern', ...names).slice(1);
  const others = rest.map((plant) => log.add(plant));
  t.ok(await isPending(Promise.any(others)), 'no plant is acknowledged before its write');
  t.equal(countOf(fs, 'write'), 1);
  gate.open();
  await Promise.all([first, ...others]);
  t.equal(countOf(fs, 'write'), 2);
  t.equal(content(), logOf([FERN, ...rest]).toString());
});

t.test('plants that are added in the same tick are written together', async (t) => {
  const { fs, log } = await open(t, {});
  const plants = plantsNamed(...Array.from({ length: 500 }, (_, n) => `plant ${n}`));
  await Promise.all(plants.map((plant) => log.add(plant)));
  t.equal(countOf(fs, 'write'), 1);
  for (const plant of plantsNamed('', '').map(({ id }) => ({ id: -id, name: '' })))
    await log.add(plant);
  t.equal(countOf(fs, 'write'), 3, 'sequential plants do not wait for each other');
});

t.test('a pending plant is found in every batch', async (t) => {
  const gate = createGate();
  const { log, content } = await open(t, { 'write 1': { hangs: gate } });
  const full = { ...IVY, name: 'x'.repeat(4_194_304) };
  const plants = [FERN, full, MOSS];
  const added = plants.slice(0, 1).map((plant) => log.add(plant));
  await gate.reached;
  added.push(...plants.slice(1).map((plant) => log.add(plant)));
  const again = plants.map((plant) => log.add(plant));
  const others = plants.map((plant) => log.add({ ...plant, tag: 'another' }));
  const refused = Promise.allSettled(others);
  gate.open();
  t.strictSame(await Promise.all(added), ['created', 'created', 'created']);
  t.strictSame(await Promise.all(again), ['unchanged', 'unchanged', 'unchanged']);
  for (const { status } of await refused) t.equal(status, 'rejected');
  t.equal(content(), logOf(plants).toString());
});

t.test('the next write begins before the promises of the previous one are resolved', async (t) => {
  const gate = createGate();
  const { fs, log } = await open(t, { 'write 1': { hangs: gate } });
  const fern = log.add(FERN).then(() => countOf(fs, 'write'));
  await gate.reached;
  const ivy = log.add(IVY);
  gate.open();
  t.equal(await fern, 2);
  await ivy;
});

t.test('a write runs in the asynchronous context in which the log was opened', async (t) => {
  const contexts = new AsyncLocalStorage<string>();
  const seen: unknown[] = [];
  const path = join(t.testdir(), 'plants.jsonl');
  const fs = faultyFileSystem({ 'write 1': { fails: 'ENOSPC' } });
  const report = (message: string): unknown => seen.push([message, contexts.getStore()]);
  const log = await contexts.run('opener', () => openLog(fs, path, { report }));
  t.teardown(() => log.close());
  await contexts.run('request', () => t.rejects(log.add(FERN), UNAVAILABLE));
  t.match(seen, exactly(exactly(/plants are refused until there is room/, 'opener')));
});

t.test('minor garbage collections free the memory of stored plants', async (t) => {
  const script = join(import.meta.dirname, 'retention.js');
  const path = join(t.testdir(), 'plants.jsonl');
  const kept = JSON.parse(
    await run('.', process.execPath, '--expose-gc', script, path),
  ) as number[];
  t.equal(kept.length, 3);
  for (const bytes of kept) t.ok(bytes < 150, `${bytes} bytes a plant`);
});

t.test('a short write is completed before its plants are acknowledged', async (t) => {
  const { fs, log, content } = await open(t, {
    'write 1': { writes: 3 },
    'write 2': { writes: 1 },
  });
  const gate = createGate();
  fs.faults['write 3'] = { hangs: gate };
  const added = Promise.all([log.add(FERN), log.add(IVY)]);
  await gate.reached;
  t.ok(await isPending(added));
  t.equal(content(), encodeRecord(FERN).slice(0, 4));
  gate.open();
  t.strictSame(await added, ['created', 'created']);
  t.equal(content(), logOf([FERN, IVY]).toString());
});

t.test(
  'a plant that was refused can be added again while other plants are still written',
  async (t) => {
    const gate = createGate();
    const { log, content } = await open(t, {
      'write 1': { fails: 'ENOSPC' },
      'write 2': { hangs: gate },
    });
    // The first alone is more than a batch.
    const long = { ...FERN, name: 'x'.repeat(4_194_304) };
    const refused = log.add(long);
    const ivy = log.add(IVY);
    await t.rejects(refused, UNAVAILABLE);
    await gate.reached;
    const again = log.add(FERN);
    gate.open();
    t.strictSame(await Promise.all([again, ivy]), ['created', 'created']);
    t.equal(content(), logOf([IVY, FERN]).toString());
  },
);

for (const code of ['ENOSPC', 'EDQUOT', 'EFBIG'])
  t.test(`${code}: plants are refused only as long as the disk is full`, async (t) => {
    const { log, reports, content } = await open(t, {
      'write 2': { fails: code },
      // One line has room, and a part of the other.
      'write 3': { writes: encodeRecord(IVY).length + 5 },
      'write 4': { fails: code },
    });
    await log.add(FERN);
    await t.rejects(log.add(IVY), { ...UNAVAILABLE, message: new RegExp(code) });
    t.equal(content(), encodeRecord(FERN));
    const both = await Promise.allSettled([log.add(IVY), log.add(MOSS)]);
    t.match(
      both,
      exactly({ reason: UNAVAILABLE }, { reason: UNAVAILABLE }),
      'a batch fails as a whole',
    );
    t.equal(content(), encodeRecord(FERN), 'only acknowledged plants are left');
    t.equal(await log.add(FERN), 'unchanged', 'stored plants are still known');
    t.equal(reports.length, 1, 'it is reported once');
    t.match(reports[0], /; plants are refused until there is room$/);

    t.equal(await log.add(IVY), 'created');
    t.equal(await log.add(MOSS), 'created');
    t.equal(reports.length, 2);
    t.match(reports[1], /: there is room again$/);
    t.equal(content(), logOf([FERN, IVY, MOSS]).toString());
    t.notOk(log.poisoned.aborted);
  });

t.test('each time the disk is full, that is reported, and so is its end', async (t) => {
  const { log, reports } = await open(t, {
    'write 1': { fails: 'ENOSPC' },
    'write 3': { fails: 'ENOSPC' },
  });
  await t.rejects(log.add(FERN), UNAVAILABLE);
  await log.add(FERN);
  await t.rejects(log.add(IVY), UNAVAILABLE);
  await log.add(IVY);
  t.equal(reports.length, 4);
});

t.test('plants that are pending when the disk is full are tried in a later write', async (t) => {
  const gate = createGate();
  const { log, content } = await open(t, { 'write 1': { hangs: gate, fails: 'ENOSPC' } });
  const fern = log.add(FERN);
  const sameFern = log.add(FERN);
  await gate.reached;
  const ivy = log.add(IVY);
  gate.open();
  await t.rejects(fern, UNAVAILABLE);
  await t.rejects(sameFern, UNAVAILABLE, 'the same plant is refused as well');
  t.equal(await ivy, 'created');
  t.equal(content(), encodeRecord(IVY));
});

const poisons: Record<string, Faults> = {
  'a write that fails': { 'write 2': { fails: 'EIO' } },
  'a partial write that fails': { 'write 2': { writes: 9 }, 'write 3': { fails: 'EIO' } },
  'a complete write that fails': { 'write 2': { writes: 1000, fails: 'EIO' } },
  'a write of 0 bytes': { 'write 2': { writes: 0 } },
  'a write that is forbidden': { 'write 2': { fails: 'EACCES' } },
  'a truncation that fails': { 'write 2': { fails: 'ENOSPC' }, 'truncate 1': { fails: 'EIO' } },
  'a truncation that fails with ENOSPC': {
    'write 2': { writes: 9, fails: 'ENOSPC' },
    'truncate 1': { fails: 'ENOSPC' },
  },
};

for (const [what, faults] of Object.entries(poisons))
  t.test(`${what} poisons the log permanently`, async (t) => {
    const { fs, log, reports, content } = await open(t, faults);
    let aborted = 0;
    log.poisoned.addEventListener('abort', () => aborted++);
    await log.add(FERN);
    const gate = createGate();
    fs.faults['write 2'] = { ...faults['write 2'], hangs: gate };
    const ivy = log.add(IVY);
    await gate.reached;
    const moss = log.add(MOSS);
    gate.open();
    await t.rejects(ivy, UNAVAILABLE);
    await t.rejects(moss, UNAVAILABLE, 'a queued plant is refused');
    const left = content();
    const tried = fs.operations.length;
    for (const plant of [FERN, IVY, MOSS]) await t.rejects(log.add(plant), UNAVAILABLE);
    t.equal(fs.operations.length, tried, 'no write is retried');
    t.equal(aborted, 1);
    t.match(log.poisoned.reason, { ...UNAVAILABLE, cause: Error });
    t.equal(reports.length, 1, 'it is reported once');
    t.match(reports[0], /; no plant is stored until the log is opened again$/);
    await log.close();
    t.equal(content(), left);
    t.ok(left.startsWith(encodeRecord(FERN)), 'all acknowledged plants are there');
    t.equal(fs.openFiles, 0);
  });

t.test('if O_DSYNC does not reach the disk, each write is followed by fsync', async (t) => {
  const { fs, log } = await open(t, { 'write 1': { writes: 5 } }, { dsyncIsDurable: false });
  const opened = fs.operations.length;
  const syncs = countOf(fs, 'sync');
  const gate = createGate();
  fs.faults[`sync ${syncs + 1}`] = { hangs: gate };
  const added = log.add(FERN);
  await gate.reached;
  t.ok(await isPending(added), 'the plant is not acknowledged yet');
  gate.open();
  await added;
  await log.add(IVY);
  t.strictSame(fs.operations.slice(opened), [
    ...['statSync', 'write', 'write', 'sync'],
    ...['statSync', 'write', 'sync'],
  ]);
});

t.test('add rejects if a line cannot be read back, and the log stays usable', async (t) => {
  const { fs, log } = await open(t, {});
  await log.add(FERN);
  fs.faults[`read ${countOf(fs, 'read') + 1}`] = { fails: 'EIO' };
  await t.rejects(log.add(FERN), { ...UNAVAILABLE, message: /EIO/ });
  t.equal(await log.add(FERN), 'unchanged');
  t.equal(await log.add(IVY), 'created');
  t.notOk(log.poisoned.aborted);
});

t.test('lines are read back one at a time, and before the log is closed', async (t) => {
  const gate = createGate();
  const { fs, log } = await open(t, {});
  await Promise.all([log.add(FERN), log.add(IVY)]);
  const read = countOf(fs, 'read');
  fs.faults[`read ${read + 1}`] = { hangs: gate };
  const again = Promise.all([log.add(FERN), log.add(IVY)]);
  const closed = log.close();
  await gate.reached;
  t.equal(countOf(fs, 'read'), read + 1);
  gate.open();
  t.strictSame(await again, ['unchanged', 'unchanged']);
  t.equal(countOf(fs, 'read'), read + 2);
  await closed;
});

t.test('a modified line poisons the log, but a write in progress is completed', async (t) => {
  const gate = createGate();
  const { log, path, reports, content } = await open(t, { 'write 2': { hangs: gate } });
  await log.add(FERN);
  const ivy = log.add(IVY);
  await gate.reached;
  const moss = log.add(MOSS);
  const changed = content().replace('fern', 'Fern');
  writeFileSync(path, changed);
  await t.rejects(log.add(FERN), { ...UNAVAILABLE, message: /was modified/ });
  t.equal(reports.length, 1);
  gate.open();
  t.equal(await ivy, 'created');
  await t.rejects(moss, UNAVAILABLE);
  t.equal(content(), changed + encodeRecord(IVY));
});

/** A committer for a file that keeps no bytes. Collects the offsets of the lines. */
function bottomless(end: number, offsets: number[] = []): Committer {
  let size = end;
  const write = async (_descriptor: number, bytes: Buffer) => {
    size += bytes.length;
    return { bytesWritten: bytes.length };
  };
  return createCommitter({
    fs: { ...nodeFileSystem, write, statSync: () => ({ ino: 1n, size: BigInt(size) }) as never },
    file: {} as LogFile,
    path: 'plants.jsonl',
    ino: 1n,
    end,
    onStored: (_id, offset) => offsets.push(offset),
    report: () => undefined,
  });
}

/** A plant with an é in its name and a line of a given length, in bytes. */
function plantOfLine(bytes: number): NewPlant {
  let length = bytes - Buffer.byteLength(encodeRecord({ id: 100n, name: '\u00e9' }));
  // The checksum of another id may have one digit more or less, so several ids are tried.
  for (let id = 100n; ; id++) {
    const plant = { id, name: `\u00e9${'x'.repeat(length)}` };
    const missing = bytes - Buffer.byteLength(encodeRecord(plant));
    if (missing === 0) return plant;
    length += missing;
  }
}

t.test('a line may have the length limit of a record, but not one byte more', async (t) => {
  const offsets: number[] = [];
  const stillWaiting: unknown[] = [];
  const committer = bottomless(0, offsets);
  const longest = plantOfLine(MAX_RECORD_BYTES);
  // The escaped name alone is as long as a line may be.
  const tooLong = { id: -1n, name: '\u0001'.repeat(MAX_RECORD_BYTES / 6) };
  const append = async (plant: NewPlant): Promise<void> => {
    t.equal(await committer.append(plant), 'created');
    stillWaiting.push(committer.pending(plant.id));
  };
  const added = append(longest);
  t.throws(() => committer.append(tooLong), new RangeError('the plant is too large'));
  t.equal(committer.pending(tooLong.id), undefined, 'its id can be used again');
  await Promise.all([added, append(FERN)]);
  t.strictSame(stillWaiting, [undefined, undefined], 'no plant is held once it is stored');
  t.strictSame(offsets, [0, MAX_RECORD_BYTES]);
});

t.test('a batch is bounded, and plants are written in the order of arrival', async (t) => {
  const { fs, log, content } = await open(t, {});
  const plants = plantsNamed(...Array.from({ length: 40 }, () => 'x'.repeat(700_000)));
  await Promise.all(plants.map((plant) => log.add(plant)));
  t.equal(countOf(fs, 'write'), 7, 'six of them are more than 4 MiB');
  t.equal(content(), logOf(plants).toString());
});

t.test('a batch of very small plants is bounded, too', async (t) => {
  const offsets: number[] = [];
  const committer = bottomless(0, offsets);
  const plants = Array.from({ length: 300_000 }, (_, n) => ({ id: BigInt(n), name: '' }));
  const batches = new Set(plants.map((plant) => committer.append(plant)));
  t.equal(batches.size, 4, 'their lines take more than 12 MiB');
  t.equal(committer.pending(299_999n)?.plant, plants.at(-1), 'all of them are found');
  await Promise.all(batches);
  t.equal(offsets.length, plants.length);
});

t.test('a closed or poisoned committer has the error with which it refuses plants', async (t) => {
  const [closed, poisoned] = [bottomless(0), bottomless(0)];
  const cause = new Error('a reason');
  t.match(poisoned.poison(cause), { ...UNAVAILABLE, message: 'plants.jsonl: a reason', cause });
  t.equal(poisoned.refusal, poisoned.poison(new Error('another')), 'the first reason is kept');
  t.match(poisoned.refusal, { ...UNAVAILABLE, cause });
  await closed.close();
  t.match(closed.refusal, { ...UNAVAILABLE, message: /the log is closed/ });
});

t.test('offsets are exact beyond 4 GiB', async (t) => {
  const offsets: number[] = [];
  const committer = bottomless(2 ** 40, offsets);
  await Promise.all([FERN, IVY, MOSS].map((plant) => committer.append(plant)));
  const [fern, ivy] = [FERN, IVY].map((plant) => encodeRecord(plant).length) as [number, number];
  t.strictSame(offsets, [2 ** 40, 2 ** 40 + fern, 2 ** 40 + fern + ivy]);
});
