import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { openPlantLog } from '../../dist/log/log.js';
import { readPlants } from '../../dist/log/read.js';
import type { NewPlant } from '../../dist/plant.js';
import { logOf } from './support.js';

const PLANTS: readonly NewPlant[] = [
  { id: -(2n ** 63n), name: '\ud800', tag: '' },
  { id: 2n ** 63n - 1n, name: 'x'.repeat(3_000_000) },
  { id: -1n, name: '\0' },
  { id: 0n, name: 'é', tag: 'indoor' },
];

async function readAll(path: string): Promise<NewPlant[]> {
  const plants: NewPlant[] = [];
  for await (const plant of readPlants(path)) plants.push(plant);
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

t.test('a FIFO is refused at once', async (t) => {
  const path = join(t.testdir(), 'pipe');
  execFileSync('mkfifo', [path]);
  const message = `${path}: it is not a regular file`;
  await t.rejects(readAll(path), { code: 'unavailable', message });
});

t.test('a file that cannot be read rejects', async (t) => {
  const nothing = readPlants(join(t.testdir(), 'none.jsonl')).next();
  await t.rejects(nothing, { code: 'unavailable', message: /ENOENT/ });
});
