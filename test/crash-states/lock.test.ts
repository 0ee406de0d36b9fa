/*
 * Lets several processes acquire the lock at the same time, in every order of their steps. Each
 * process may be stopped or killed at any moment. The steps are those of the real lock, in a
 * simulated folder.
 */
import t from 'tap';

import { byLength } from '../helpers/effort.js';
import { exploreLock, type LockOptions } from './lock.js';

const options = byLength<LockOptions[]>(
  [{ processes: 2, looks: 0 }],
  [{ processes: 2, looks: 1 }],
  [
    { processes: 2, looks: 2 },
    // This takes minutes. With looks at the clock, it would take too long.
    { processes: 3, looks: 0 },
  ],
);

t.setTimeout(0);

for (const each of options)
  t.test(
    `of ${each.processes} processes, at most one holds the lock, and the next can get it`,
    async (t) => {
      // The runner would take a silent test for one that hangs.
      const beat = setInterval(() => t.comment('it goes on'), 60_000);
      t.teardown(() => clearInterval(beat));
      const violations = await exploreLock(each);
      t.strictSame([...violations], []);
    },
  );
