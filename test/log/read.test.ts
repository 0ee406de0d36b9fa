import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  copyFileSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';

import t from 'tap';

import { nodeSystem, type System } from '../../dist/log/system.js';
import type { Part } from '../../dist/log/lines.js';
import { openLog, openPlantLog } from '../../dist/log/log.js';
import { encodeRecord, MAX_RECORD_BYTES } from '../../dist/log/record.js';
import { plantsIn, readPlantLog, readPlants } from '../../dist/log/read.js';
import type { NewPlant } from '../../dist/plant.js';
import { runExample } from '../example.js';
import { block } from '../readme.js';
import {
  changingAfter,
  createGate,
  faultyFileSystem,
  logOf,
  plantsNamed,
  rewriteEnd,
  systemError,
} from './support.js';

const PLANTS: readonly NewPlant[] = [
  { id: -(2n ** 63n), name: '\ud800', tag: '' },
  { id: 2n ** 63n - 1n, name: 'x'.repeat(3_000_000) },
  { id: -1n, name: '\0' },
  { id: 0n, name: 'é', tag: 'indoor' },
];

async function readAll(path: string): Promise<NewPlant[]> {
  const plants: NewPlant[] = [];
  for await (const plant of readPlantLog(path)) plants.push(plant);
  return plants;
}

t.test('all plants of an open log are read in the order in which they were added', async (t) => {
  const path = join(t.testdir(), 'plants.jsonl');
  const log = await openPlantLog(path);
  for (const plant of PLANTS) await log.add(plant);
  t.strictSame(await readAll(path), PLANTS);
  await log.close();
  t.ok(readFileSync(path).equals(logOf(PLANTS)));
});

t.test('a partial last line is left out', async (t) => {
  const content = Buffer.concat([logOf(PLANTS), Buffer.from('{"id":1,')]);
  const path = join(t.testdir({ 'plants.jsonl': content }), 'plants.jsonl');
  t.strictSame(await readAll(path), PLANTS);
});

t.test('a damaged line is reported by its number and offset', async (t) => {
  const bytes = logOf(PLANTS);
  const path = join(t.testdir(), 'plants.jsonl');
  for (const damage of ['{"id":1}\n', Buffer.from('{"id":1,"name":"\xff"}\n', 'latin1')]) {
    writeFileSync(path, Buffer.concat([bytes, Buffer.from(damage)]));
    const message = `${path}: line 5, at byte ${bytes.length}: it is not a valid record`;
    await t.rejects(readAll(path), { code: 'damaged', message: new RegExp(message) });
  }
});

t.test('a line that is longer than any record is damaged', async (t) => {
  const path = join(t.testdir({ 'plants.jsonl': '' }), 'plants.jsonl');
  truncateSync(path, MAX_RECORD_BYTES + 1);
  appendFileSync(path, '\n');
  await t.rejects(readAll(path), {
    code: 'damaged',
    message: /line 1, .* longer than any record$/,
  });
});

t.test('a line that a server cuts off while it is read is not reported as damaged', async (t) => {
  const before = logOf(PLANTS);
  const cut = encodeRecord({ id: 1n, name: 'oak'.repeat(500_000) });
  const path = join(t.testdir(), 'plants.jsonl');
  writeFileSync(path, Buffer.concat([before, Buffer.from(cut)]));
  const written = encodeRecord({ id: 2n, name: 'ivy'.repeat(500_000) });
  const change = (): void => rewriteEnd(path, before.length, written);
  const plants: NewPlant[] = [];
  const reading = async (): Promise<void> => {
    const fs = changingAfter(before.length + 1_000, change);
    for await (const plant of readPlants(fs, path)) plants.push(plant);
  };
  const message = `${path}: the file was modified or replaced by another process`;
  await t.rejects(reading(), { code: 'unavailable', message });
  t.strictSame(plants, PLANTS, 'the plants before it are read');
});

t.test('a line longer than any record is damaged', async (t) => {
  async function* parts(): AsyncGenerator<Part> {
    yield { kind: 'lines', offset: 0, bytes: logOf(PLANTS) };
    yield { kind: 'long line', offset: 1_000, length: 2 ** 30 };
  }
  const reading = plantsIn(parts(), (offset) => new Error(`damaged at byte ${offset}`));
  for (const plant of PLANTS) t.strictSame((await reading.next()).value, plant);
  await t.rejects(reading.next(), { message: 'damaged at byte 1000' });
});

t.test('a FIFO is refused at once', async (t) => {
  const path = join(t.testdir(), 'pipe');
  execFileSync('mkfifo', [path]);
  const message = `${path}: it is not a regular file`;
  await t.rejects(readAll(path), { code: 'unavailable', message });
});

t.test('a file that cannot be read rejects', async (t) => {
  const nothing = readPlantLog(join(t.testdir(), 'none.jsonl')).next();
  await t.rejects(nothing, { code: 'unavailable', message: /ENOENT/ });
});

/** The ids that an iteration yields. */
async function idsOf(plants: AsyncIterable<NewPlant>): Promise<bigint[]> {
  const ids: bigint[] = [];
  for await (const { id } of plants) ids.push(id);
  return ids;
}

const MANY = plantsNamed(...Array.from({ length: 5_000 }, (_, n) => `fern ${n} `.repeat(20)));
const IDS = MANY.map(({ id }) => id);
const UNAVAILABLE = { name: 'PlantStoreError', code: 'unavailable' };

t.test('a log iterates over its plants in the order in which they were stored', async (t) => {
  const path = join(t.testdir(), 'plants.jsonl');
  const log = await openPlantLog(path);
  t.strictSame(await idsOf(log.plants()), [], 'an empty log has none');
  for (const plant of PLANTS) await log.add(plant);
  const plants: NewPlant[] = [];
  for await (const plant of log.plants()) plants.push(plant);
  t.strictSame(plants, PLANTS, 'all ids and strings are exact');
  await log.close();

  const again = await openPlantLog(path);
  t.strictSame(
    await idsOf(again.plants()),
    PLANTS.map(({ id }) => id),
    'also after reopening',
  );
  await again.close();
});

t.test('the plants of a log are printed by the example of its document', async (t) => {
  const { args } = t.capture(console, 'log') as unknown as { args: () => unknown[][] };
  const code = block('Reading a log', 'ts').replace('data/plants', 'plants');
  await runExample(t, code, { 'plants.jsonl': String(logOf(PLANTS)) });
  const printed = PLANTS.map(({ id, name, tag }) => [id, name, tag]);
  t.strictSame(args(), printed);
});

t.test('the example of its document reads a log that is open', async (t) => {
  const path = join(t.testdir(), 'plants.jsonl');
  const log = await openPlantLog(path);
  for (const plant of PLANTS) await log.add(plant);
  const files = readdirSync(dirname(path));
  const { args } = t.capture(console, 'log') as unknown as { args: () => unknown[][] };
  const code = block('While another process has it open', 'ts');
  await runExample(t, code.replace('data/plants.jsonl', path));
  t.strictSame(
    args(),
    PLANTS.map(({ id, name, tag }) => [id, name, tag]),
  );
  t.strictSame(readdirSync(dirname(path)), files, 'it leaves no file');
  await log.close();
});

t.test('plants that are added after the first one was read are not read', async (t) => {
  const path = join(t.testdir(), 'plants.jsonl');
  const log = await openPlantLog(path);
  for (const plant of PLANTS) await log.add(plant);
  const ids: bigint[] = [];
  for await (const { id } of readPlantLog(path)) {
    ids.push(id);
    await log.add({ id: id / 2n + 5n, name: 'later' });
  }
  t.strictSame(
    ids,
    PLANTS.map(({ id }) => id),
  );
  await log.close();
});

const HAS_SOURCE = Number(process.versions.node.split('.')[0]) >= 22;
const skip = HAS_SOURCE ? false : 'JSON.parse has no source text access before Node 22';
t.test('the reviver of the document keeps ids exact', { skip }, async (t) => {
  const code = block('Reading a log', 'js').replace('const { id, name, tag } =', 'return');
  const module = await runExample(t, `export const parse = (line) => { ${code} };`);
  const parse = module.parse as (line: string) => NewPlant;
  for (const plant of PLANTS) {
    const { id, name, tag } = parse(encodeRecord(plant));
    t.strictSame(tag === undefined ? { id, name } : { id, name, tag }, plant);
  }
});

t.test('an iteration does not yield plants that are added after it began', async (t) => {
  const path = join(t.testdir({ 'plants.jsonl': logOf(MANY) }), 'plants.jsonl');
  const log = await openPlantLog(path);
  const ids: bigint[] = [];
  for await (const { id } of log.plants()) {
    if (ids.push(id) % 10 === 0) await log.add({ id: -id, name: 'ivy' });
  }
  t.strictSame(ids, IDS);
  t.equal(log.size, 5_500);
  t.strictSame(
    (await idsOf(log.plants())).slice(5_000),
    IDS.filter((id) => id % 10n === 0n).map((id) => -id),
  );
  await log.close();
});

t.test('an iteration begins when its first plant is requested', async (t) => {
  const log = await openPlantLog(join(t.testdir(), 'plants.jsonl'));
  const plants = log.plants();
  await log.add({ id: 1n, name: 'fern' });
  t.strictSame(await idsOf(plants), [1n]);
  await log.close();
});

t.test('an iteration yields no plant that is not durable yet, or that is cut off', async (t) => {
  const path = join(t.testdir(), 'plants.jsonl');
  const gate = createGate();
  let fails = false;
  const fs: System = {
    ...nodeSystem,
    // All bytes are in the file before the write returns.
    async write(descriptor, bytes) {
      const result = await nodeSystem.write(descriptor, bytes);
      if (!bytes.includes('ivy')) return result;
      await gate.pass();
      fails = true;
      throw systemError('ENOSPC', 'write');
    },
  };
  const log = await openLog(fs, path, { report: () => undefined });
  await log.add({ id: 1n, name: 'fern' });
  const ivy = log.add({ id: 2n, name: 'ivy' });
  await gate.reached;
  t.match(readFileSync(path, 'utf8'), /ivy/);
  t.strictSame(await idsOf(log.plants()), [1n]);
  gate.open();
  await t.rejects(ivy, UNAVAILABLE);
  t.ok(fails);
  await log.add({ id: 3n, name: 'moss' });
  t.strictSame(await idsOf(log.plants()), [1n, 3n]);
  await log.close();
});

t.test('several iterations run at once, each at its own pace', async (t) => {
  const path = join(t.testdir({ 'plants.jsonl': logOf(MANY) }), 'plants.jsonl');
  const fs = faultyFileSystem();
  const log = await openLog(fs, path);
  const slow = log.plants()[Symbol.asyncIterator]();
  t.match(await slow.next(), { value: { id: 1n } });
  const all = await Promise.all(Array.from({ length: 10 }, () => idsOf(log.plants())));
  for (const ids of all) t.strictSame(ids, IDS);
  t.match(await slow.next(), { value: { id: 2n } });
  t.equal(fs.openFiles, 1, 'they open no file');
  await log.close();
  t.equal(fs.openFiles, 0);
});

t.test(
  'an iteration that is not finished keeps no file open and does not delay close',
  async (t) => {
    const path = join(t.testdir({ 'plants.jsonl': logOf(MANY) }), 'plants.jsonl');
    const fs = faultyFileSystem();
    const log = await openLog(fs, path);
    for await (const { id } of log.plants()) if (id === 2n) break;
    const abandoned = log.plants()[Symbol.asyncIterator]();
    await abandoned.next();
    await log.close();
    t.equal(fs.openFiles, 0);
  },
);

t.test('an iteration rejects once the log is closed', async (t) => {
  const path = join(t.testdir({ 'plants.jsonl': logOf(MANY) }), 'plants.jsonl');
  const log = await openPlantLog(path);
  const plants = log.plants();
  let read = 0;
  const reading = (async () => {
    for await (const { id } of plants) if (id === 10n && ++read) await log.close();
  })();
  await t.rejects(reading, { ...UNAVAILABLE, message: `${path}: the log is closed` });
  t.equal(read, 1);
  await t.rejects(idsOf(log.plants()), { ...UNAVAILABLE, message: `${path}: the log is closed` });
});

t.test('an iteration rejects if the log is closed after its last read', async (t) => {
  const path = join(t.testdir(), 'plants.jsonl');
  const log = await openPlantLog(path);
  await Promise.all(
    plantsNamed(...Array<string>(1_000).fill('fern')).map((plant) => log.add(plant)),
  );
  let n = 0;
  const reading = (async () => {
    for await (const { id } of log.plants()) {
      n++;
      if (id !== 1n) continue;
      await log.close();
      renameSync(path, `${path}.old`);
    }
  })();
  await t.rejects(reading, { ...UNAVAILABLE, message: `${path}: the log is closed` });
  t.equal(n, 1_000);
  t.notOk(log.poisoned.aborted, 'the file of a closed log may be moved');
});

t.test('close during a read of an iteration waits for it, and the iteration rejects', async (t) => {
  const path = join(t.testdir({ 'plants.jsonl': logOf(MANY) }), 'plants.jsonl');
  const fs = faultyFileSystem();
  const log = await openLog(fs, path);
  const gate = createGate();
  const reads = fs.operations.filter((kind) => kind === 'read').length;
  fs.faults[`read ${reads + 1}`] = { hangs: gate };
  const ids = idsOf(log.plants());
  await gate.reached;
  const closing = log.close();
  gate.open();
  await t.rejects(ids, { ...UNAVAILABLE, message: /the log is closed/ });
  await closing;
  t.equal(fs.openFiles, 0);
});

t.test('a read that fails rejects, and the log is still usable', async (t) => {
  const path = join(t.testdir({ 'plants.jsonl': logOf(MANY) }), 'plants.jsonl');
  const fs = faultyFileSystem();
  const log = await openLog(fs, path);
  const reads = fs.operations.filter((kind) => kind === 'read').length;
  fs.faults[`read ${reads + 2}`] = { fails: 'EIO' };
  await t.rejects(idsOf(log.plants()), { ...UNAVAILABLE, message: `${path}: i/o error (EIO)` });
  t.strictSame(await idsOf(log.plants()), IDS);
  t.equal(await log.add({ id: 0n, name: 'ivy' }), 'created');
  await log.close();
});

/** What may happen to the file of an open log, at any moment of an iteration. */
const CHANGES: Record<string, (path: string) => void> = {
  'the file is replaced by a copy': (path) => {
    copyFileSync(path, `${path}.copy`);
    renameSync(`${path}.copy`, path);
  },
  'the file is removed': (path) => rmSync(path),
  'the file is truncated': (path) => truncateSync(path, statSync(path).size - 1),
  'the file is emptied': (path) => truncateSync(path),
  'a line of it is modified': (path) => modify(path, 'fern 4000', 'fern 4OOO'),
  'the newline of its last line is overwritten': (path) => {
    const content = readFileSync(path);
    content[content.length - 1] = 0x20;
    writeFileSync(path, content);
  },
};

function modify(path: string, from: string, to: string): void {
  writeFileSync(path, readFileSync(path, 'latin1').replace(from, to), 'latin1');
}

for (const [what, change] of Object.entries(CHANGES))
  for (const at of [0n, 1n])
    t.test(`if ${what} ${at ? 'during' : 'before'} an iteration, it poisons the log`, async (t) => {
      const path = join(t.testdir({ 'plants.jsonl': logOf(MANY) }), 'plants.jsonl');
      const log = await openPlantLog(path, { report: () => undefined });
      if (at === 0n) change(path);
      let seen = 0;
      const reading = (async () => {
        for await (const { id } of log.plants()) {
          seen++;
          if (id === at) change(path);
        }
      })();
      await t.rejects(reading, { ...UNAVAILABLE, message: /modified|ENOENT/ });
      t.ok(seen < MANY.length, `it ends after ${seen} plants`);
      t.ok(log.poisoned.aborted);
      await t.rejects(log.add({ id: 0n, name: 'ivy' }), UNAVAILABLE);
      await t.rejects(idsOf(log.plants()), log.poisoned.reason as Error);
      await log.close();
    });

t.test('an iteration rejects once the log is poisoned by a failed write', async (t) => {
  const path = join(t.testdir({ 'plants.jsonl': logOf(MANY) }), 'plants.jsonl');
  const fs = faultyFileSystem({ 'write 1': { fails: 'EIO' } });
  const log = await openLog(fs, path, { report: () => undefined });
  const reading = (async () => {
    for await (const { id } of log.plants())
      if (id === 1n) await t.rejects(log.add({ id: 0n, name: 'ivy' }), UNAVAILABLE);
  })();
  await t.rejects(reading, { ...UNAVAILABLE, message: /EIO/ });
  await log.close();
});
