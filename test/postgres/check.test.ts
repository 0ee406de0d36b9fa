import t from 'tap';

import { missing, query, startCluster, until, type Cluster } from './cluster.js';
import { FERN, openStore, type TestStore } from './support.js';

const isReady = (store: TestStore): Promise<boolean> =>
  store.check().then(
    () => true,
    () => false,
  );

async function change(cluster: Cluster, setting: string): Promise<void> {
  await cluster.sql(`ALTER SYSTEM ${setting}`);
  await cluster.sql('SELECT pg_reload_conf()');
}

t.test('whether plants can be stored', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);
  const unavailable = (message: RegExp): { code: string; message: RegExp } => ({
    code: 'unavailable',
    message,
  });

  t.test('the check stores nothing, and says when the store is closed', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url });
    await store.check();
    t.strictSame(await query(url, 'TABLE plants'), []);
    t.equal(await store.add(FERN), 'created');
    await store.check();
    const checking = store.check();
    await store.close();
    await checking;
    await t.rejects(store.check(), unavailable(/: the store is closed$/));
  });

  t.test('concurrent checks share one statement on a connection of its own', async (t) => {
    const url = await cluster.createSchema();
    await query(url, 'ALTER ROLE CURRENT_USER SET log_min_duration_statement = 0');
    const store = await openStore(t, { url, connections: 1 });
    const count = (): number =>
      [...cluster.log().matchAll(/ execute \w{32}: WITH none AS/g)].length;
    await Promise.all(Array.from({ length: 50 }, () => store.check()));
    t.equal(count(), 1);
    await Promise.all(Array.from({ length: 50 }, () => store.check()));
    t.equal(count(), 2, 'later ones are checks of their own');
    const sql = `SELECT FROM pg_stat_activity WHERE usename = '${new URL(url).username}'`;
    t.equal((await cluster.sql(sql)).length, 2);
  });

  t.test('the server is stopped, and started again', async (t) => {
    const store = await openStore(t, { url: await cluster.createSchema() });
    await store.check();
    await cluster.stop();
    await t.rejects(store.check(), unavailable(/^127\.0\.0\.1:\d+\/postgres: /));
    await t.rejects(store.check(), unavailable(/ECONNREFUSED/));
    await cluster.start();
    await until(() => isReady(store));
    t.strictSame(store.reports, [], 'a check reports nothing');
  });

  t.test('the server hangs', async (t) => {
    const store = await openStore(t, { url: await cluster.createSchema(), timeoutMs: 1_000 });
    const fresh = await openStore(t, { url: await cluster.createSchema(), timeoutMs: 1_000 });
    await store.check();
    const activity = await cluster.sql('SELECT pid FROM pg_stat_activity');
    const pids = [cluster.pid(), ...activity.map(({ pid }) => Number(pid))];
    const signal = (name: NodeJS.Signals): void => {
      for (const pid of pids)
        try {
          process.kill(pid, name);
        } catch {
          // The connection that asked is closed.
        }
    };
    t.teardown(() => signal('SIGCONT'));
    signal('SIGSTOP');
    // A plant that is added at the same time is refused after `timeoutMs`.
    const adding = store.add(FERN).catch(() => 'refused');
    const checks = [store, fresh].map(async (each) => [await isReady(each)]);
    for (const check of checks) t.strictSame(await Promise.race([adding, check]), [false]);
    await adding;
    signal('SIGCONT');
    await until(() => isReady(store));
  });

  t.test('the table is dropped', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url });
    await query(url, 'ALTER TABLE plants RENAME TO other');
    await t.rejects(store.check(), unavailable(/"plants" does not exist/));
    await query(url, 'ALTER TABLE other RENAME TO plants');
    await store.check();
    await query(url, 'ALTER TABLE plants SET UNLOGGED');
    await t.rejects(store.check(), unavailable(/can lose plants/));
  });

  t.test('unsafe and read-only settings of the server are noticed', async (t) => {
    const store = await openStore(t, { url: await cluster.createSchema() });
    for (const setting of ['fsync = off', 'synchronous_commit = off']) {
      await change(cluster, `SET ${setting}`);
      await until(async () => !(await isReady(store)));
      await t.rejects(store.check(), unavailable(/=off can lose plants/));
      await change(cluster, 'RESET ALL');
      await until(() => isReady(store));
    }
    await change(cluster, 'SET default_transaction_read_only = on');
    await until(async () => !(await isReady(store)));
    await t.rejects(store.check(), unavailable(/read-only/));
    await change(cluster, 'RESET ALL');
    await until(() => isReady(store));
  });

  t.test('only a standby is left, until it is promoted', async (t) => {
    const primary = await startCluster(t);
    const standby = await primary.createStandby(t, 'standby');
    const hosts = [primary.port, standby.port].map((port) => `127.0.0.1:${port}`).join();
    const store = await openStore(t, { url: `postgres://postgres@${hosts}/postgres` });
    await store.check();
    // The standby has the table.
    await until(
      async () => (await standby.sql(`SELECT to_regclass('plants')`))[0]?.to_regclass !== null,
    );
    await primary.stop();
    await t.rejects(store.check(), unavailable(/./));
    await until(() =>
      store.check().then(
        () => false,
        (error: unknown) => String(error).includes('read-only'),
      ),
    );
    await standby.promote();
    await until(() => isReady(store));
  });
});
