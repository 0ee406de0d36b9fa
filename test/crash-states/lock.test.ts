/*
 * Processes that acquire the lock at once, in every order of their steps, with each of them stopped
 * or killed at any moment. The steps are those of the real lock, in a simulated folder.
 */
import t from 'tap';

import { byLength } from '../helpers/effort.js';
import { exploreLock, type LockOptions } from './lock.js';

const options = byLength<LockOptions[]>(
  [{ processes: 2, looks: 0 }],
  [{ processes: 2, looks: 1 }],
  [
    { processes: 2, looks: 2 },
    // This takes minutes. With a look at the clock, it would not end in a useful time.
    { processes: 3, looks: 0 },
  ],
);

t.setTimeout(0);

for (const each of options)
  t.test(
    `of ${each.processes} processes, at most one holds the lock, and one can get it`,
    async (t) => {
      // The runner takes a test that is silent for one that hangs.
      const beat = setInterval(() => t.comment('it goes on'), 60_000);
      t.teardown(() => clearInterval(beat));
      const violations = await exploreLock(each);
      t.strictSame([...violations], []);
    },
  );
