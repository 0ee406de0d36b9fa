import { spawnSync } from 'node:child_process';
import { chownSync, mkdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import type { NewPlant } from '../../dist/index.js';
import { exactly } from '../exactly.js';
import { missing, query, serverFolder, startCluster, succeeds, until, USER } from './cluster.js';
import { addUntilStored, openStore, plantsFrom, refusedOf, type TestStore } from './support.js';

const canMount = spawnSync('unshare', ['--mount', 'mount', '--make-rprivate', '/']).status === 0;
const skip = missing() || (!canMount && 'needs the right to mount');

t.setTimeout(1_800_000);

/** A file system of its own for the server. Returns the folder where it is mounted. */
function mountDisk(t: Test, megabytes: number): string {
  const disk = join(serverFolder(t), 'disk');
  mkdirSync(disk);
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', disk]);
  if (mounted.status !== 0) throw new Error(String(mounted.stderr));
  t.teardown(() => spawnSync('umount', ['--lazy', disk]));
  if (USER) chownSync(disk, USER.uid, USER.gid);
  return disk;
}

/** Adds plants until the store refuses them, and returns those that were acknowledged. */
async function addUntilAway(store: TestStore): Promise<NewPlant[]> {
  const acknowledged: NewPlant[] = [];
  for (let first = 0; store.reports.length === 0; first += 50) {
    const batch = plantsFrom(first, 50).map((plant) => ({ ...plant, tag: 'x'.repeat(1_000) }));
    const refused = new Set((await refusedOf(store, batch)).map(({ plant }) => plant));
    acknowledged.push(...batch.filter((plant) => !refused.has(plant)));
  }
  return acknowledged;
}

async function losesNothing(t: Test, store: TestStore, acknowledged: NewPlant[]): Promise<void> {
  t.equal(await addUntilStored(store, { id: -1n, name: 'after' }), 'created');
  t.match(store.reports, { 1: /stored again/, length: 2 });
  const outcomes = await Promise.all(acknowledged.map((plant) => store.add(plant)));
  t.ok(outcomes.length > 0 && outcomes.every((outcome) => outcome === 'unchanged'));
}

t.test('the disk of the table is full', { skip }, async (t) => {
  const disk = mountDisk(t, 16);
  const { url } = await startCluster(t);
  await query(url, `CREATE TABLESPACE small LOCATION '${disk}'`);
  const store = await openStore(t, { url });
  await query(url, 'ALTER TABLE plants SET TABLESPACE small');
  const acknowledged = await addUntilAway(store);
  t.match(store.reports, exactly(/No space left/));
  spawnSync('mount', ['-o', 'remount,size=64m', disk]);
  await losesNothing(t, store, acknowledged);
});

t.test('the disk of the write-ahead log is full', { skip }, async (t) => {
  const disk = mountDisk(t, 64);
  const wal = join(disk, 'wal');
  const cluster = await startCluster(t, { initdb: ['--waldir', wal, '--wal-segsize', '1'] });
  const store = await openStore(t, { url: cluster.url });
  const { bavail, bsize } = statfsSync(disk);
  const filler = join(disk, 'filler');
  writeFileSync(filler, Buffer.alloc(bavail * bsize));
  const acknowledged = await addUntilAway(store);
  rmSync(filler);
  // It has shut down, or may be doing so.
  await until(async () => (await succeeds(cluster.start())) || succeeds(cluster.sql('SELECT 1')));
  await losesNothing(t, store, acknowledged);
});
