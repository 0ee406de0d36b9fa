/*
 * Three processes that acquire the lock at once, in every order of their steps, with each of them
 * stopped or killed at any moment. The steps are those of the real lock, in a simulated folder. With two
 * looks at the clock, each process may try a second time: some millions of states.
 */
import t from 'tap';

import type { System } from '../../dist/log/files.js';
import { byLength } from '../length.js';
import { systemError } from '../log/support.js';
import { exploreLock, type LockOptions, type Wrong } from './lock-explore.js';
import type { Mutate } from './lock-steps.js';

if (byLength(false, true, true)) t.setTimeout(0);
const options = byLength<LockOptions[]>(
  [{ processes: 2, looks: 2 }],
  [
    { processes: 2, looks: 4 },
    { processes: 3, looks: 0, listsAtOnce: false },
  ],
  [{ processes: 3, looks: 1, listsAtOnce: true }],
);

for (const each of options)
  t.test(
    `${each.processes} processes: at most one holds the lock, and it can always be acquired`,
    async (t) => {
      const { states, steps, violations } = await exploreLock(each);
      t.strictSame([...violations], []);
      t.comment(`${states} states, ${steps} steps`);
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

async function isDenied(): Promise<never> {
  throw systemError('EACCES', 'unlink');
}

async function isRefused(): Promise<never> {
  throw systemError('ECONNREFUSED', 'connect');
}

const mutations: Record<string, { mutate: Mutate; finds: Wrong }> = {
  'no process lists the other claims': {
    mutate: (fs) => ({ ...fs, readdir: async () => [] }),
    finds: 'two hold the lock',
  },
  'a process lists the claims before its own is visible': {
    mutate: lookingTooEarly,
    finds: 'two hold the lock',
  },
  'a dead claim cannot be removed': {
    mutate: (fs) => ({ ...fs, unlink: isDenied }),
    finds: 'nobody can take the lock',
  },
  'live claims are taken for dead': {
    mutate: (fs) => ({ ...fs, connect: isRefused }),
    finds: 'two hold the lock',
  },
  'dead claims are not removed': {
    mutate: (fs) => ({ ...fs, unlink: async () => undefined }),
    finds: 'a dead claim is left',
  },
};

for (const [what, { mutate, finds }] of Object.entries(mutations))
  t.test(`the exploration detects that ${what}`, async (t) => {
    const { violations } = await exploreLock({ processes: 2, looks: 1, mutate });
    t.ok(violations.has(finds), [...violations.keys()].join(', '));
  });
