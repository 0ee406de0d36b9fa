/**
 * Measures how long it takes to look up a plant by its id in a log of a million plants:
 *
 *   npm run build && node test/bench/get.js
 *
 * The ids are random, and the file is in the page cache.
 */

import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openPlantLog } from '../../dist/index.js';
import { fill } from './growth/plant-store.js';
import { median, significant } from './report.js';

const PLANTS = 1_000_000;
const LOOK_UPS = 20_000;

const folder = join(mkdtempSync(join(tmpdir(), 'plants-')), 'data');
mkdirSync(folder);
try {
  fill(folder, { name: 'Boston fern', tag: 'indoor' }, PLANTS);
  const log = await openPlantLog(join(folder, 'plants.jsonl'));
  const times = [];
  for (let n = 0; n < LOOK_UPS; n++) {
    const id = BigInt(1 + Math.floor(Math.random() * PLANTS));
    const start = performance.now();
    const plant = await log.get(id);
    times.push(performance.now() - start);
    if (plant?.id !== id) throw new Error(`the log lacks ${id}`);
  }
  await log.close();
  console.log(`median of ${LOOK_UPS} look-ups: ${significant(median(times) * 1000)} µs`);
} finally {
  rmSync(folder, { recursive: true });
}
