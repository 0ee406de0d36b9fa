import { chmodSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { openLog, openPlantLog, type PlantLog } from '../../dist/log/log.js';
import { repairLog } from '../../dist/log/repair.js';
import { nodeSystem } from '../../dist/log/files.js';
import { claimsIn } from './lock-support.js';
import { hasty, ignore, LOCKED, shortFolder } from './support.js';

/* These tests change the user of their process. Each file of tests runs in a process of its own. */

const IS_ROOT = process.geteuid?.() === 0;

/** A folder in which every user may create files. */
function sharedFolder(t: Test, prefix?: string): string {
  const folder = shortFolder(t, prefix);
  chmodSync(folder, 0o777);
  return folder;
}

/** Opens a log that every user may open. */
async function openForAll(t: Test, prefix?: string) {
  const folder = sharedFolder(t, prefix);
  const path = join(folder, 'plants.jsonl');
  const log = await openPlantLog(path);
  chmodSync(path, 0o666);
  const [claim = ''] = claimsIn(folder);
  return { folder, path, log, claim };
}

/** Does something as another user than root. */
async function asOther<Result>(act: () => Promise<Result>): Promise<Result> {
  if (IS_ROOT) process.seteuid?.('nobody');
  try {
    return await act();
  } finally {
    if (IS_ROOT) process.seteuid?.('root');
  }
}

const openAsOther = (path: string, system = nodeSystem): Promise<PlantLog> =>
  asOther(() => openLog(system, path));

const PREFIXES = {
  'in a folder with a short path': 'plants-',
  'in a folder with a path that is too long for a socket': `plants-${'x'.repeat(80)}-`,
};

for (const [what, prefix] of Object.entries(PREFIXES))
  t.test(`the lock of another user is not taken, ${what}`, async (t) => {
    const { folder, path, log, claim } = await openForAll(t, prefix);
    await t.rejects(openAsOther(path, hasty()), LOCKED);
    // A claim to which only its owner may connect.
    chmodSync(join(folder, claim), 0);
    await t.rejects(openAsOther(path, hasty()), LOCKED);
    await log.close();
  });

t.test('a folder that is not writable is an error', async (t) => {
  const folder = sharedFolder(t);
  const log = join(folder, 'log');
  writeFileSync(log, 'damaged\n');
  chmodSync(folder, 0o555);
  const denied = 'permission denied (EACCES)';
  for (const path of [join(folder, 'plants.jsonl'), join(folder, 'missing', 'plants.jsonl')])
    await t.rejects(openAsOther(path), { code: 'unavailable', message: `${path}: ${denied}` });
  const repair = asOther(() => repairLog(nodeSystem, log, ignore));
  await t.rejects(repair, { code: 'unavailable', message: `${log}: ${denied}` });
});

const NEEDS_ROOT = { skip: IS_ROOT ? false : 'only root can act as two users' };
t.test(
  'a dead claim that only another user may remove does not keep a log closed',
  NEEDS_ROOT,
  async (t) => {
    const folder = sharedFolder(t);
    chmodSync(folder, 0o1777);
    const path = join(folder, 'plants.jsonl');
    writeFileSync(path, '');
    chmodSync(path, 0o666);
    const dead = `.plant-store-${statSync(path).ino}-${'0'.repeat(16)}`;
    writeFileSync(join(folder, dead), '', { mode: 0o666 });
    chmodSync(join(folder, dead), 0o666);
    const other = await openAsOther(path);
    await other.close();
    t.strictSame(claimsIn(folder), [dead]);
  },
);
