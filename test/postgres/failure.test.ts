import pg from 'pg';
import t, { type Test } from 'tap';

import type { NewPlant } from '../../dist/index.js';
import { exactly } from '../exactly.js';
import { missing, query, startCluster, until } from './cluster.js';
import { startProxy } from './proxy.js';
import { addUntilStored, FERN, IVY, openStore, type TestStore } from './support.js';

/** Adds new plants until it is stopped, and returns those that were acknowledged. */
function keepAdding(store: TestStore): () => Promise<NewPlant[]> {
  const acknowledged: NewPlant[] = [];
  let isStopped = false;
  let id = 1_000n;
  const clients = Array.from({ length: 8 }, async () => {
    while (!isStopped) {
      const plant = { id: id++, name: `plant ${id}` };
      await addUntilStored(store, plant);
      acknowledged.push(plant);
    }
  });
  return async () => {
    isStopped = true;
    await Promise.all(clients);
    return acknowledged;
  };
}

t.test('while the database is away', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);

  async function isAway(store: TestStore): Promise<void> {
    await until(() => store.reports.length > 0);
  }

  /** How a server fails under load, and is mended. */
  const failures: Record<string, (store: TestStore, t: Test, url: string) => Promise<void>> = {
    async 'the server is restarted'(store) {
      await cluster.stop();
      await isAway(store);
      await cluster.start();
    },
    async 'the server is killed'(store) {
      process.kill(cluster.pid(), 'SIGKILL');
      await isAway(store);
      // Not before its other processes have ended.
      await until(() =>
        cluster.start().then(
          () => true,
          () => false,
        ),
      );
    },
    async 'the server hangs'(store, t) {
      const resume = await cluster.suspend(t);
      await isAway(store);
      await t.rejects(store.add(IVY), { code: 'unavailable' });
      resume();
    },
    async 'the table is dropped'(store, _, url) {
      await query(
        url,
        `BEGIN; LOCK TABLE plants; CREATE TABLE copy AS TABLE plants; DROP TABLE plants; COMMIT`,
      );
      await isAway(store);
      await query(url, 'ALTER TABLE copy ADD PRIMARY KEY (id); ALTER TABLE copy RENAME TO plants');
    },
  };
  for (const [what, befall] of Object.entries(failures))
    t.test(`no acknowledged plant is lost: ${what}`, async (t) => {
      const url = await cluster.createSchema();
      // With a long lock_timeout, no plant is refused because the table is locked.
      const timeoutMs = what === 'the table is dropped' ? 60_000 : 1_000;
      const store = await openStore(t, { url, timeoutMs });
      const stop = keepAdding(store);
      t.teardown(stop);
      await addUntilStored(store, FERN);
      await befall(store, t, url);
      t.equal(await addUntilStored(store, IVY), 'created');
      const outcomes = (await stop()).map((plant) => store.add(plant));
      t.strictSame(new Set(await Promise.all(outcomes)), new Set(['unchanged']));
      const once = exactly(/plants are refused/, /stored again/);
      t.match(store.reports, once, 'away once, and back once');
    });

  t.test('memory is bounded', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url, timeoutMs: 300 });
    const other = new pg.Client(url);
    await other.connect();
    await other.query('BEGIN; LOCK TABLE plants');
    const name = 'x'.repeat(1_048_576);
    const adding = Array.from({ length: 100 }, (_, n) => store.add({ id: BigInt(n), name }));
    const outcomes = await Promise.allSettled(adding);
    const refused = outcomes.filter(
      (outcome) => outcome.status === 'rejected' && String(outcome.reason).includes('too many'),
    );
    t.ok(refused.length > 70 && refused.length < 90, `${refused.length} of 100 MiB are refused`);
    await other.end();
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
        let bytes = 0;
        proxy.nextCut = () => ({ bytes: (bytes += mode === 'silence' ? 331 : 97), mode });
        await query(
          url,
          `TRUNCATE plants; SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`,
        );
        const before = proxy.connections;
        const plants = Array.from({ length: 40 }, (_, n) => ({
          id: BigInt(n),
          name: `${mode} ${n}`,
          tag: 'x'.repeat(n),
        }));
        // Four at a time, so that there are batches.
        for (let n = 0; n < plants.length; n += 4)
          await Promise.all(plants.slice(n, n + 4).map((plant) => addUntilStored(store, plant)));
        t.ok(proxy.connections > before + 5);
        proxy.nextCut = () => undefined;
        for (const plant of plants) t.equal(await addUntilStored(store, plant), 'unchanged');
        t.strictSame(await query(url, 'SELECT count(*)::int FROM plants'), [{ count: 40 }]);
      });
  });
});
