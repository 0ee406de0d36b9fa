/*
 * Recovers from crash states at random, at least 100,000 of them:
 *
 *     npm run test:crash-states -- [--seed N] [--states N]
 *
 * The first history has the given seed, the next one the next number, and so on. The seed of a
 * history in which a promise is broken is printed; a run with that seed begins with it.
 */
import { randomInt } from 'node:crypto';
import { parseArgs } from 'node:util';

import { liveThrough } from './histories.js';

const { values } = parseArgs({
  options: { seed: { type: 'string' }, states: { type: 'string', default: '100000' } },
});
const first = Number(values.seed ?? randomInt(2 ** 31));
const states = Number(values.states);
if (!Number.isSafeInteger(first)) throw new RangeError('--seed: must be an integer');
if (!(states > 0)) throw new RangeError('--states: must be positive');

console.log(`seed ${first}`);
const seen = new Set<string>();
let seed = first;
for (; seen.size < states; seed++)
  try {
    await liveThrough(seed, seen);
  } catch (error) {
    console.error(`seed ${seed}:`, error);
    process.exit(1);
  }
console.log(`${seen.size} crash states in ${seed - first} histories, no promise broken`);
