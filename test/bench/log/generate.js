/**
 * Writes the same log as the store, but without waiting for the disk after each batch:
 *
 *   node generate.js FILE PLANTS sequential|shuffled
 */

import { closeSync, fsyncSync, openSync, writeSync } from 'node:fs';
import { encodeRecord } from '../../../dist/log/record.js';

const PLANTS_PER_WRITE = 4096;
const NAMES = ['Boston fern', 'Monstera', 'Snake plant', 'Peace lily', 'Aloe vera', 'Jade plant'];

const [path, plants, order] = process.argv.slice(2);
const ids = Uint32Array.from({ length: Number(plants) }, (_, n) => n + 1);
if (order === 'shuffled') shuffle(ids);

const file = openSync(path, 'wx', 0o600);
for (let start = 0; start < ids.length; start += PLANTS_PER_WRITE) {
  let lines = '';
  for (const id of ids.subarray(start, start + PLANTS_PER_WRITE))
    lines += encodeRecord({ id: BigInt(id), name: NAMES[id % NAMES.length], tag: 'indoor' });
  writeSync(file, lines);
}
// Otherwise the system might write it back during the next measurement.
fsyncSync(file);
closeSync(file);

/** Fisher–Yates shuffle. */
function shuffle(numbers) {
  for (let last = numbers.length - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [numbers[last], numbers[other]] = [numbers[other], numbers[last]];
  }
}
