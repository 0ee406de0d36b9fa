import { execFileSync } from 'node:child_process';
import { closeSync, openSync, readFileSync, statSync, truncateSync, writeSync } from 'node:fs';

import t from 'tap';

import { openPlantLog, type PlantLog } from '../../dist/log/log.js';
import { verifyLog } from '../../dist/log/read.js';
import { readPlantLog } from '../../dist/log/read.js';
import { nodeSystem } from '../../dist/log/system.js';
import type { NewPlant } from '../../dist/plant.js';
import { example } from '../embedding/application.js';
import { FERN, IVY, MOSS, PLANTS_OF_EACH_SHAPE, plantsNamed } from '../helpers/plants.js';
import { collect } from '../helpers/stores.js';
import {
  countOf,
  holdNext,
  ignore,
  isPending,
  logAt,
  logOf,
  openWithFaults,
  UNAVAILABLE,
} from './support.js';

const PLANTS: readonly NewPlant[] = [
  { id: -(2n ** 63n), name: '\ud800', tag: '' },
  { id: 2n ** 63n - 1n, name: 'x'.repeat(300_000) },
  { id: -1n, name: '\0' },
  ...PLANTS_OF_EACH_SHAPE,
];
/** Plants whose lines are read in three parts. */
const MANY = plantsNamed(...Array.from({ length: 700 }, (_, n) => `fern ${n} `.repeat(50)));

/** The two ways to read a log. The first one reads through the process that has the log open. */
const READERS = {
  'log.plants()': (log: PlantLog) => log.plants(),
  readPlantLog: ({ path }: PlantLog) => readPlantLog(path),
};

for (const [name, read] of Object.entries(READERS)) {
  t.test(`${name} yields all plants in the order in which they were stored`, async (t) => {
    const path = logAt(t);
    const log = await openPlantLog(path);
    t.strictSame(await collect(read(log)), [], 'an empty log has none');
    for (const plant of PLANTS) await log.add(plant);
    t.strictSame(await collect(read(log)), PLANTS, 'all ids and strings are exact');
    await log.close();
  });

  t.test(`${name} begins when a plant is requested, and yields no later ones`, async (t) => {
    const log = await openPlantLog(logAt(t, logOf(MANY)));
    const plants = read(log);
    const first = { id: 0n, name: 'ivy' };
    await log.add(first);
    const later: NewPlant[] = [];
    const seen: NewPlant[] = [];
    for await (const plant of plants) {
      if (seen.push(plant) % 100 !== 0) continue;
      const moss = { id: -1n - plant.id, name: 'moss' };
      later.push(moss);
      await log.add(moss);
    }
    t.strictSame(seen, [...MANY, first]);
    t.strictSame((await collect(read(log))).slice(seen.length), later);
    await log.close();
  });
}

t.test('a last line without its newline is read, an incomplete line is not', async (t) => {
  const whole = logOf(PLANTS);
  for (const content of [whole.subarray(0, -1), Buffer.concat([whole, Buffer.from('{"id":1,')])])
    t.strictSame(await collect(readPlantLog(logAt(t, content))), PLANTS);
});

t.test('reading a log rejects at once if its file cannot be read', async (t) => {
  const path = logAt(t);
  await t.rejects(readPlantLog(path).next(), { code: 'unavailable', message: /ENOENT/ });
  execFileSync('mkfifo', [path]);
  const message = `${path}: it is not a regular file`;
  await t.rejects(readPlantLog(path).next(), { code: 'unavailable', message });
  for (const path of [undefined, null, Buffer.from('plants.jsonl')])
    t.throws(() => readPlantLog(path as never), TypeError);
});

for (const name of ['plants-of-log', 'read-log'])
  t.test(`the plants of a log are printed by the example ${name}`, async (t) => {
    const cwd = process.cwd();
    t.teardown(() => process.chdir(cwd));
    process.chdir(t.testdir({ data: { 'plants.jsonl': logOf(PLANTS) } }));
    const printed = t.capture(console, 'log');
    await import(example(name));
    t.strictSame(
      printed().map(({ args }) => args as unknown[]),
      PLANTS.map(({ id, name, tag }) => [id, name, tag]),
    );
  });

t.test('an iteration yields no plant that is not durable yet, or that is cut off', async (t) => {
  const { fs, log, content } = await openWithFaults(t, {}, { dsyncIsDurable: false });
  await log.add(FERN);
  const gate = holdNext(fs, 'fsync', { fails: 'ENOSPC' });
  const refused = t.rejects(log.add(IVY), UNAVAILABLE);
  await gate.reached;
  t.match(content(), /ivy/);
  t.strictSame(await collect(log.plants()), [FERN]);
  gate.open();
  await refused;
  await log.add(MOSS);
  t.strictSame(await collect(log.plants()), [FERN, MOSS]);
});

t.test('several iterations of a log run at once, each at its own pace', async (t) => {
  const { fs, log } = await openWithFaults(t, {}, { content: logOf(MANY) });
  const slow = log.plants()[Symbol.asyncIterator]();
  t.match(await slow.next(), { value: MANY[0] });
  const all = await Promise.all([collect(log.plants()), collect(log.plants())]);
  t.strictSame(all, [MANY, MANY]);
  t.match(await slow.next(), { value: MANY[1] });
  t.equal(fs.openFiles, 1, 'the iterations open no file');
});

t.test('an iteration rejects if the log is closed before its last read', async (t) => {
  const { fs, log, path } = await openWithFaults(t, {}, { content: logOf(MANY) });
  const error = { ...UNAVAILABLE, message: `${path}: the log is closed` };
  const plants = log.plants();
  t.match(await plants[Symbol.asyncIterator]().next(), { value: MANY[0] });
  await log.close();
  t.equal(fs.openFiles, 0, 'the iteration does not delay close');
  const reads = countOf(fs, 'read');
  await t.rejects(collect(plants), error, 'the iteration that had begun');
  await t.rejects(collect(log.plants()), error);
  t.equal(countOf(fs, 'read'), reads, 'the descriptor may be that of another file');
});

t.test('close waits for the read of an iteration, and the iteration rejects', async (t) => {
  const { fs, log } = await openWithFaults(t, {}, { content: logOf(MANY) });
  const gate = holdNext(fs, 'read');
  const error = { ...UNAVAILABLE, message: /the log is closed/ };
  const refused = t.rejects(collect(log.plants()), error);
  await gate.reached;
  const [closing, closes] = [log.close(), countOf(fs, 'close')];
  t.ok(await isPending(closing));
  t.equal(countOf(fs, 'close'), closes);
  gate.open();
  await refused;
  await closing;
  t.equal(fs.openFiles, 0);
});

t.test('an iteration rejects if a read fails, and the log is still usable', async (t) => {
  const { fs, log, path } = await openWithFaults(t, {}, { content: logOf(MANY) });
  fs.faults[`read ${countOf(fs, 'read') + 2}`] = { fails: 'EIO' };
  const error = { ...UNAVAILABLE, message: `${path}: i/o error (EIO)` };
  await t.rejects(collect(log.plants()), error);
  t.strictSame(await collect(log.plants()), MANY);
  t.equal(await log.add({ id: 0n, name: 'ivy' }), 'created');
});

function overwrite(path: string, offset: number, bytes: string): void {
  const file = openSync(path, 'r+');
  writeSync(file, bytes, offset);
  closeSync(file);
}

const TRUNCATED = { ...UNAVAILABLE, message: 'truncated' };
const damagedAt = (line: number, reason: string) => ({
  name: 'PlantStoreError',
  code: 'damaged',
  message: `: line ${line}, at byte ${logOf(MANY.slice(0, line - 1)).length}: ${reason}`,
});

/** What another process may do to an open log after which some plants can no longer be read. */
const MODIFICATIONS: Record<string, [change: (path: string) => void, error: typeof TRUNCATED]> = {
  'truncated to nothing': [(path) => truncateSync(path), TRUNCATED],
  'truncated by one byte': [(path) => truncateSync(path, statSync(path).size - 1), TRUNCATED],
  'modified in a line': [
    (path) => overwrite(path, readFileSync(path).indexOf('fern 650'), 'Fern'),
    damagedAt(651, 'crc32: does not match the plant'),
  ],
  'modified in its last newline': [
    (path) => overwrite(path, statSync(path).size - 1, ' '),
    damagedAt(700, 'it holds a plant'),
  ],
};

for (const [what, [change, error]] of Object.entries(MODIFICATIONS))
  t.test(`an iteration rejects if the file is ${what} before or during it`, async (t) => {
    const log = await openPlantLog(logAt(t, logOf(MANY)), { report: ignore });
    const begun = Object.values(READERS).map((read) => read(log));
    for (const plants of begun)
      t.match(await plants[Symbol.asyncIterator]().next(), { value: MANY[0] });
    change(log.path);
    await t.rejects(collect(log.plants()), error);
    for (const plants of begun) await t.rejects(collect(plants), error);
    await log.close();
  });

t.test('a check of all lines rejects if the file is truncated during it', async (t) => {
  const path = logAt(t, logOf(MANY));
  const checked = verifyLog(nodeSystem, path);
  t.match(await checked.next(), { value: { offset: 0 } });
  truncateSync(path);
  await t.rejects(collect(checked), TRUNCATED);
});

t.test('an iteration rejects once the log is poisoned', async (t) => {
  const faults = { 'write 1': { fails: 'EIO' } };
  const { log } = await openWithFaults(t, faults, { content: logOf(MANY) });
  const plants = log.plants()[Symbol.asyncIterator]();
  t.match(await plants.next(), { value: MANY[0] });
  await t.rejects(log.add({ id: 0n, name: 'ivy' }), UNAVAILABLE);
  await t.rejects(collect(log.plants()), { ...UNAVAILABLE, message: /EIO/ });
  t.match(await plants.next(), { value: MANY[1] }, 'an iteration that has begun goes on');
});
