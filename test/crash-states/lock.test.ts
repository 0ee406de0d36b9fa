/*
 * Processes that acquire the lock at once, in every order of their steps, with each of them stopped or killed
 * at any moment. The steps are those of the real lock, in a simulated folder.
 */
import t from 'tap';

import type { System } from '../../dist/log/system.js';
import { byLength } from '../length.js';
import { exploreLock, type LockOptions, type Wrong } from './lock.js';

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

/** Lists the claims before its own is visible. */
function lookingTooEarly(fs: System): System {
  let names: string[] = [];
  return {
    ...fs,
    async rename(from, to) {
      names = await fs.readdir('');
      await fs.rename(from, to);
    },
    readdir: async () => names,
  };
}

const mutations: readonly (readonly [what: string, mutate: LockOptions['mutate'], finds: Wrong])[] =
  [
    ['a process lists the claims before its own is visible', lookingTooEarly, 'two hold the lock'],
    [
      'dead claims are taken for live',
      (fs) => ({ ...fs, connect: async () => undefined }),
      'nobody can take the lock',
    ],
    [
      'dead claims are not removed',
      (fs) => ({ ...fs, unlink: async () => undefined }),
      'a dead claim is left',
    ],
  ];

for (const [what, mutate, finds] of mutations)
  t.test(`the exploration detects that ${what}`, async (t) => {
    const violations = await exploreLock({ processes: 2, looks: 0, mutate });
    t.ok(violations.has(finds), [...violations.keys()].join(', '));
  });
