import t, { type Test } from 'tap';

import type { NewPlant } from '../../dist/index.js';
import { missing, query, startCluster, until, type Cluster } from './cluster.js';
import { startProxy } from './proxy.js';
import { addUntilStored, FERN, IVY, openStore, type TestStore } from './support.js';

/** Adds new plants until it is stopped, and returns those that were acknowledged. */
function keepAdding(store: TestStore): () => Promise<NewPlant[]> {
  const acknowledged: NewPlant[] = [];
  let isStopped = false;
  let id = 1_000n;
  async function client(): Promise<void> {
    while (!isStopped) {
      const plant = { id: id++, name: `plant ${id}` };
      await addUntilStored(store, plant);
      acknowledged.push(plant);
    }
  }
  const clients = Array.from({ length: 8 }, client);
  return async () => {
    isStopped = true;
    await Promise.all(clients);
    return acknowledged;
  };
}

t.test('while the database is away', { skip: missing() }, async (t) => {
  t.jobs = 4;

  /** A server of its own, a store on it, and something that befalls the server under load. */
  function survives(
    what: string,
    befall: (cluster: Cluster, store: TestStore, t: Test) => Promise<void>,
  ): void {
    t.test(`no acknowledged plant is lost: ${what}`, async (t) => {
      const cluster = await startCluster(t);
      const store = await openStore(t, { url: cluster.url, timeoutMs: 500 });
      const stop = keepAdding(store);
      await addUntilStored(store, FERN);
      await befall(cluster, store, t);
      t.equal(await addUntilStored(store, IVY), 'created');
      const acknowledged = await stop();
      const outcomes = await Promise.all(acknowledged.map((plant) => store.add(plant)));
      t.ok(outcomes.every((outcome) => outcome === 'unchanged'));
      t.match(store.reports, [/plants are refused/, /stored again/], 'away once, and back once');
      t.equal(store.reports.length, 2);
    });
  }

  async function isAway(store: TestStore): Promise<void> {
    await until(() => store.reports.length > 0);
  }

  survives('the server is restarted', async (cluster, store) => {
    await cluster.stop();
    await isAway(store);
    await cluster.start();
  });

  survives('the server is killed', async (cluster, store) => {
    await cluster.stop('immediate');
    await isAway(store);
    await cluster.start();
  });

  survives('the server hangs', async (cluster, store, t) => {
    const pids = (await cluster.sql('SELECT pid FROM pg_stat_activity')).map(({ pid }) =>
      Number(pid),
    );
    const all = [cluster.pid(), ...pids];
    const signal = (name: NodeJS.Signals): void => {
      for (const pid of all)
        try {
          process.kill(pid, name);
        } catch {
          // The connection that asked is closed.
        }
    };
    t.teardown(() => signal('SIGCONT'));
    signal('SIGSTOP');
    await isAway(store);
    await t.rejects(store.add(IVY), { code: 'unavailable' });
    signal('SIGCONT');
  });

  survives('the table is dropped', async (cluster, store) => {
    await cluster.sql('ALTER TABLE plants RENAME TO gone');
    await isAway(store);
    await cluster.sql('ALTER TABLE gone RENAME TO plants');
  });

  t.test('memory is bounded', async (t) => {
    const cluster = await startCluster(t);
    const store = await openStore(t, { url: cluster.url, timeoutMs: 500 });
    const lock = query(cluster.url, 'BEGIN; LOCK TABLE plants; SELECT pg_sleep(1.5)');
    await until(async () => {
      const locks = await cluster.sql(`SELECT 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock'`);
      return locks.length > 0;
    });
    const name = 'x'.repeat(1_048_576);
    let refused = 0;
    const adding = Array.from({ length: 100 }, (_, n) =>
      store.add({ id: BigInt(n), name }).catch((error: unknown) => {
        if ((error as Error).message.includes('too many')) refused++;
      }),
    );
    await Promise.all(adding);
    t.ok(refused > 70 && refused < 90, `${refused} of 100 MiB are refused at once`);
    await lock;
  });
});

const OTHERS_TERMINATED = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`;

t.test('connections that are cut', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);
  // Creates the table, however long that takes.
  await openStore(t, { url: cluster.url });
  const proxy = await startProxy(t, cluster.port);
  const store = await openStore(t, {
    url: `postgres://postgres@127.0.0.1:${proxy.port}/postgres`,
    timeoutMs: 300,
  });
  for (const mode of ['fin', 'rst', 'silence'] as const)
    t.test(`by ${mode}, after any number of bytes`, async (t) => {
      let bytes = 0;
      proxy.nextCut = () => ({ bytes: (bytes += mode === 'silence' ? 331 : 97), mode });
      const plants = Array.from({ length: 40 }, (_, n) => ({
        id: BigInt(n),
        name: `${mode} ${n}`,
        tag: 'x'.repeat(n),
      }));
      await query(cluster.url, 'TRUNCATE plants');
      await query(cluster.url, OTHERS_TERMINATED);
      const before = proxy.connections;
      for (const plant of plants) await addUntilStored(store, plant);
      t.ok(proxy.connections > before + 5);
      proxy.nextCut = () => undefined;
      for (const plant of plants) t.equal(await addUntilStored(store, plant), 'unchanged');
      t.match(await query(cluster.url, 'SELECT count(*)::int FROM plants'), [{ count: 40 }]);
    });
});
