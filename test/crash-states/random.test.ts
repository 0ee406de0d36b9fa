import t from 'tap';

import { seed as first } from '../length.js';
import { liveThrough } from './histories.js';

const STATES = 1_000;

t.test('no acknowledged plant is lost in random histories with crashes', async (t) => {
  t.comment(`TEST_SEED=${first}`);
  const seen = new Set<string>();
  for (let seed = first; seen.size < STATES; seed++)
    await t.resolves(liveThrough(seed, seen), `seed ${seed}`);
});
