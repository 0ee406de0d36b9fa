/*
 * Recovers from crash states at random. The first history has the seed of the run, the next one the next
 * number, and so on. The seed of a history in which a promise is broken is printed; a run with TEST_SEED
 * set to it begins with that history.
 */
import { isLong, seed as first } from '../length.js';
import { liveThrough } from './histories.js';

const STATES = isLong ? 100_000 : 10_000;

console.log(`TEST_SEED=${first}`);
const seen = new Set<string>();
let seed = first;
for (; seen.size < STATES; seed++)
  try {
    await liveThrough(seed, seen);
  } catch (error) {
    console.error(`TEST_SEED=${seed}`, error);
    process.exit(1);
  }
console.log(`${seen.size} crash states in ${seed - first} histories, no promise broken`);
