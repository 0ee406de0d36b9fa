import t from 'tap';

import { seed as first } from '../extent.js';
import { liveThrough } from './histories.js';

const STATES = 1_000;

t.test('no acknowledged plant is lost in random histories with crashes', async (t) => {
  t.comment(`npm run test:crash-states -- --seed ${first}`);
  const seen = new Set<string>();
  for (let seed = first; seen.size < STATES; seed++)
    await t.resolves(liveThrough(seed, seen), `seed ${seed}`);
});
