import t from 'tap';

import { missing, query, startCluster, until } from './cluster.js';
import { FERN, openStore, type TestStore } from './support.js';

const isReady = (store: TestStore): Promise<boolean> =>
  store.check().then(
    () => true,
    () => false,
  );

t.test('whether plants can be stored', { skip: missing() }, async (t) => {
  const cluster = await startCluster(t);
  const unavailable = (message: RegExp) => ({ code: 'unavailable', message });

  t.test('the check stores nothing, and says when the store is closed', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url });
    await store.check();
    t.strictSame(await query(url, 'TABLE plants'), []);
    t.equal(await store.add(FERN), 'created');
    const checking = store.check();
    await store.close();
    await checking;
    await t.rejects(store.check(), unavailable(/^127\.0\.0\.1:\d+\/\w+: the store is closed$/));
  });

  t.test('concurrent checks share one statement on a connection of its own', async (t) => {
    const url = await cluster.createSchema();
    await query(url, 'ALTER ROLE CURRENT_USER SET log_min_duration_statement = 0');
    const store = await openStore(t, { url, connections: 1 });
    for (const count of [1, 2]) {
      await Promise.all(Array.from({ length: 50 }, () => store.check()));
      t.equal([...cluster.log().matchAll(/ execute \w{32}: WITH none AS/g)].length, count);
    }
    const sql = `SELECT FROM pg_stat_activity WHERE usename = '${new URL(url).username}'`;
    t.equal((await cluster.sql(sql)).length, 2);
  });

  t.test('a table that cannot store plants is noticed', async (t) => {
    const url = await cluster.createSchema();
    const store = await openStore(t, { url });
    const troubles: [trouble: string, message: RegExp, mend: string][] = [
      ['RENAME TO other', /"plants" does not exist/, 'ALTER TABLE other RENAME TO plants'],
      ['SET UNLOGGED', /can lose plants/, 'ALTER TABLE plants SET LOGGED'],
    ];
    for (const [trouble, message, mend] of troubles) {
      await query(url, `ALTER TABLE plants ${trouble}`);
      await t.rejects(store.check(), unavailable(message));
      await query(url, mend);
      await store.check();
    }
  });

  t.test('the server is stopped, and started again', async (t) => {
    const store = await openStore(t, { url: await cluster.createSchema() });
    await store.check();
    await cluster.stop();
    await until(() =>
      store.check().then(
        () => false,
        (error: unknown) => String(error).includes('ECONNREFUSED'),
      ),
    );
    await cluster.start();
    await until(() => isReady(store));
    t.strictSame(store.reports, [], 'a check reports nothing');
  });

  t.test('the server hangs', async (t) => {
    const store = await openStore(t, { url: await cluster.createSchema(), timeoutMs: 1_000 });
    const fresh = await openStore(t, { url: await cluster.createSchema(), timeoutMs: 1_000 });
    await store.check();
    const resume = await cluster.suspend(t);
    t.strictSame(await Promise.all([store, fresh].map(isReady)), [false, false]);
    resume();
    await until(() => isReady(store));
  });
});
