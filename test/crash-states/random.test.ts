/*
 * Recovers from crash states at random. The first history has the seed of the run, the next one the next
 * number, and so on: a run with TEST_SEED set to the seed of a failure begins with that history.
 */
import t from 'tap';

import { byLength, seed as first } from '../length.js';
import { liveThrough } from './histories.js';

const STATES = byLength(250, 5_000, 100_000);

t.setTimeout(0);

t.test('no acknowledged plant is lost in random histories with crashes', async (t) => {
  const seen = new Set<string>();
  for (let seed = first; seen.size < STATES; seed++)
    await t.resolves(liveThrough(seed, seen), `TEST_SEED=${seed}`);
});
