import { spawnSync } from 'node:child_process';

import t, { type Test } from 'tap';

import { exactly } from '../exactly.js';
import {
  begin,
  missing,
  query,
  serverFolder,
  startCluster,
  succeeds,
  until,
  USER,
} from './cluster.js';
import { startLoad } from './load.js';
import { startProxy } from './proxy.js';
import {
  addUntilStored,
  IVY,
  openStore,
  plantsFrom,
  refusedOf,
  type TestStore,
} from './support.js';

const canMount = spawnSync('unshare', ['--mount', 'mount', '--make-rprivate', '/']).status === 0;

t.test('while the database is away', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);

  async function isAway(store: TestStore, t: Test): Promise<void> {
    await until(() => store.reports.length > 0);
    await t.rejects(store.check(), { code: 'unavailable' });
  }

  /** How a server fails under load, and is mended. */
  const failures: Record<string, (store: TestStore, t: Test, url: string) => Promise<void>> = {
    async 'the server is killed'(store, t) {
      process.kill(cluster.pid(), 'SIGKILL');
      await isAway(store, t);
      // Not before its other processes have ended.
      await until(() => succeeds(cluster.start()));
    },
    async 'the server hangs'(store, t) {
      const resume = await cluster.suspend();
      await isAway(store, t);
      await t.rejects(store.add(IVY), { code: 'unavailable' });
      resume();
    },
    async 'the table is dropped'(store, t, url) {
      await query(
        url,
        `BEGIN; LOCK TABLE plants; CREATE TABLE copy AS TABLE plants; DROP TABLE plants; COMMIT`,
      );
      await isAway(store, t);
      await query(url, 'ALTER TABLE copy ADD PRIMARY KEY (id); ALTER TABLE copy RENAME TO plants');
    },
  };
  for (const [what, befall] of Object.entries(failures))
    t.test(`no acknowledged plant is lost: ${what}`, async (t) => {
      const url = await cluster.createSchema();
      // Long where it is not waited for, so that no plant is refused because the machine is busy.
      const timeoutMs = what === 'the server hangs' ? 2_000 : 60_000;
      const store = await openStore(t, { url, timeoutMs });
      const load = startLoad([store]);
      await load.proceeds();
      await befall(store, t, url);
      await load.proceeds();
      await load.losesNothing(t, url);
      await until(() => succeeds(store.check()));
      const once = exactly(/plants are refused/, /stored again/);
      t.match(store.reports, once, 'away once, and back once');
    });

  t.test('memory is bounded', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url, timeoutMs: 300 });
    const rollBack = await begin(t, url, 'LOCK TABLE plants');
    const name = 'x'.repeat(1_048_576);
    const refused = await refusedOf(
      store,
      plantsFrom(0, 100).map(({ id }) => ({ id, name })),
    );
    const { length } = refused.filter(({ error }) => String(error).includes('too many'));
    t.ok(length > 70 && length < 90, `${length} of 100 MiB are refused`);
    await rollBack();
  });

  t.test('connections that are cut', async (t) => {
    const url = await cluster.createSchema();
    // Creates the table, however long that takes.
    await openStore(t, { url });
    const proxy = await startProxy(t, cluster.port);
    const proxied = url.replace(String(cluster.port), String(proxy.port));
    const store = await openStore(t, { url: proxied, timeoutMs: 150 });
    for (const mode of ['fin', 'rst', 'silence'] as const)
      t.test(`by ${mode}, after any number of bytes`, async (t) => {
        let connections = 0;
        const step = mode === 'silence' ? 331 : 97;
        proxy.nextCut = () => ({ bytes: ++connections * step, mode });
        await query(
          url,
          `TRUNCATE plants; SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`,
        );
        const plants = plantsFrom(0, 80).map((plant, n) => ({ ...plant, tag: 'x'.repeat(n) }));
        // Eight at a time, so that there are batches.
        for (let n = 0; n < plants.length; n += 8)
          await Promise.all(plants.slice(n, n + 8).map((plant) => addUntilStored(store, plant)));
        t.ok(connections > 5);
        proxy.nextCut = () => undefined;
        for (const plant of plants) t.equal(await addUntilStored(store, plant), 'unchanged');
        t.strictSame(await query(url, 'SELECT count(*)::int FROM plants'), [{ count: 80 }]);
      });
  });

  const skip = !canMount && 'needs the right to mount';
  t.test('no acknowledged plant is lost: the disk of the table is full', { skip }, async (t) => {
    const folder = serverFolder(t);
    const mount = (options: string) =>
      spawnSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', folder]);
    t.equal(mount(`size=1m,uid=${USER?.uid}`).status, 0);
    t.teardown(() => spawnSync('umount', ['--lazy', folder]));
    const url = await cluster.createSchema();
    const store = await openStore(t, { url });
    await query(url, `CREATE TABLESPACE small LOCATION '${folder}'`);
    await query(url, 'ALTER TABLE plants SET TABLESPACE small');
    const load = startLoad([store]);
    await until(() => store.reports.length > 0);
    t.match(store.reports[0], /No space left/);
    mount('remount,size=64m');
    await load.proceeds();
    await load.losesNothing(t, url);
    t.match(store.reports.at(-1), /stored again/);
  });
});
