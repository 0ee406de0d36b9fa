/*
 * What is stored stays valid for ever. `stored/` has lines that released versions have written.
 * They are never changed, and a version that writes other lines adds a file.
 */
import { spawnSync } from 'node:child_process';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

import t, { type Test } from 'tap';

import { openPlantLog } from '../../dist/log/log.js';
import type * as Log from '../../dist/log/log.js';
import type * as Read from '../../dist/log/read.js';
import type * as PlantJson from '../../dist/plant-json.js';
import type { NewPlant } from '../../dist/plant.js';
import { buildWithMoreRules } from '../helpers/more-rules.js';
import { inJson } from '../helpers/plants.js';
import { ENV, runHere } from '../helpers/program.js';
import { collect } from '../helpers/stores.js';
import { ignore } from './support.js';

const STORED = resolve('test/log/stored/1.0.0.jsonl');
const CONTENT = readFileSync(STORED, 'utf8');

/** The plants whose lines are in the file. */
const PLANTS: readonly NewPlant[] = [
  { id: 7n, name: 'Boston fern', tag: 'indoor' },
  { id: 8n, name: 'ivy' },
  { id: 9n, name: '' },
  { id: 10n, name: '', tag: '' },
  { id: 0n, name: 'zero' },
  { id: -1n, name: 'minus one' },
  { id: 9_007_199_254_740_993n, name: 'more than 2^53' },
  { id: 9_223_372_036_854_775_807n, name: 'the largest id' },
  { id: -9_223_372_036_854_775_808n, name: 'the smallest id' },
  { id: 11n, name: '"quoted" \\ and / slashes', tag: 'a\ttab,\na line, \r\f\b' },
  { id: 12n, name: '\0', tag: '\u0001\u001f\u007f' },
  { id: 13n, name: '\ud800', tag: '\udfff\ud800' },
  { id: 14n, name: '\u{1f33f} L\u00f6wenzahn \u82d4', tag: 'e\u0301' },
  { id: 15n, name: 'line\u2028separator', tag: 'paragraph\u2029' },
  { id: 16n, name: '\ufeff\ufffd\uffff' },
  { id: 17n, name: '","crc32":0}', tag: '{"id":1,"name":"x"}' },
  { id: 18n, name: 'fern '.repeat(200), tag: '\u{1f33f}'.repeat(300) },
  { id: 19n, name: 'x'.repeat(120_000) },
];

/** Runs a command of a build to its end. */
function command(dist: string, ...args: string[]): { status: number | null; stdout: string } {
  const env = { PLANT_STORE_FILE: join(dist, '../imported.jsonl') };
  const program = [join(dist, 'server.js'), ...args];
  const { status, stdout } = spawnSync(process.execPath, program, { env, encoding: 'utf8' });
  return { status, stdout };
}

const EXPORTED = CONTENT.replace(/,"crc32":\d+\}$/gm, '}');

/** Checks that a build accepts the stored lines wherever it reads lines. */
async function expectStoredLines(t: Test, dist: string, path: string): Promise<void> {
  const { openPlantLog } = (await import(join(dist, 'log/log.js'))) as typeof Log;
  const { readPlantLog } = (await import(join(dist, 'log/read.js'))) as typeof Read;
  t.strictSame(await collect(readPlantLog(path)), PLANTS);
  const log = await openPlantLog(path, { report: ignore });
  t.equal(log.size, PLANTS.length);
  t.strictSame(await collect(log.plants()), PLANTS);
  for (const plant of PLANTS) {
    t.strictSame(await log.get(plant.id), plant);
    const other = { id: plant.id, name: 'another', tag: 'plant' };
    await t.rejects(log.add(other), { code: 'conflict' }, `id ${plant.id}`);
  }
  await log.close();
  t.equal(readFileSync(path, 'utf8'), CONTENT, 'nothing was changed');

  const verified = `${path}: 18 plants, ${Buffer.byteLength(CONTENT)} bytes, 0 damaged lines\n`;
  t.strictSame(command(dist, 'verify', path), { status: 0, stdout: verified });
  t.strictSame(command(dist, 'export', path), { status: 0, stdout: EXPORTED });
  writeFileSync(path, CONTENT.replaceAll('\n', '\r\n'));
  t.match(command(dist, 'repair', path), {
    status: 0,
    stdout: /: kept 18 plants, wrote 18 lines /,
  });
  t.equal(readFileSync(path, 'utf8'), CONTENT);
}

t.test('lines of 1.0.0 are read, compared, exported, imported and repaired', async (t) => {
  const path = join(t.testdir(), 'plants.jsonl');
  copyFileSync(STORED, path);
  await expectStoredLines(t, resolve('dist'), path);
  for (const lines of [CONTENT, EXPORTED]) {
    const cwd = t.testdir({ 'lines.jsonl': lines });
    await runHere(t, { args: ['import', 'lines.jsonl'], cwd, env: ENV });
    t.equal(readFileSync(join(cwd, 'plants.jsonl'), 'utf8'), CONTENT);
  }
  const log = await openPlantLog(join(t.testdirName, 'plants.jsonl'));
  for (const plant of PLANTS) t.equal(await log.add(plant), 'unchanged', `id ${plant.id}`);
  await log.close();
});

/** Whether a plant obeys the rules that `buildWithMoreRules` adds. */
const obeysRules = ({ name, tag }: NewPlant): boolean => tag !== undefined && name.length <= 100;

t.test('a rule for new plants does not apply to stored plants', async (t) => {
  const dist = buildWithMoreRules(t);
  const path = join(dist, '../plants.jsonl');
  copyFileSync(STORED, path);
  await expectStoredLines(t, dist, path);

  const { openPlantLog } = (await import(join(dist, 'log/log.js'))) as typeof Log;
  const { parseNewPlant } = (await import(join(dist, 'plant-json.js'))) as typeof PlantJson;
  const log = await openPlantLog(path);
  for (const plant of PLANTS) {
    const about = `id ${plant.id}`;
    const body = Buffer.from(inJson(plant));
    if (obeysRules(plant)) {
      t.strictSame(parseNewPlant(body), plant, about);
      t.equal(await log.add(plant), 'unchanged', about);
    } else {
      t.throws(() => parseNewPlant(body), { name: 'PlantFault', kind: 'plant' }, about);
      await t.rejects(log.add(plant), { name: 'TypeError' }, about);
    }
  }
  await log.close();

  const kept = PLANTS.filter(obeysRules).length;
  const counts = `: ${kept} plants imported, 0 unchanged, ${PLANTS.length - kept} lines refused\n`;
  t.match(command(dist, 'import', path), { status: 1, stdout: counts });
});
