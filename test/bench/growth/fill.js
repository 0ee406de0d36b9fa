/**
 * Fills a store in an empty folder with plants, which are on disk when it ends:
 *
 *   node fill.js STORE FOLDER PLANTS
 *
 * The ids are 1, 2, 3 and so on: in ascending order the trees of the databases become smallest.
 */

import { closeSync, fsyncSync, openSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';

const PLANT = { name: 'Boston fern', tag: 'indoor' };

const [store, folder, plants] = process.argv.slice(2);
const { fill } = await import(`./${store}.js`);
await fill(folder, PLANT, Number(plants));
for (const name of readdirSync(folder)) {
  const file = openSync(join(folder, name), 'r');
  // Otherwise the system might write the file back during the next measurement.
  fsyncSync(file);
  closeSync(file);
}
