import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';

import pg from 'pg';
import t from 'tap';

import {
  find,
  freePort,
  missing,
  query,
  serverFolder,
  startCluster,
  until,
  USER,
} from './cluster.js';
import { FERN, openStore } from './support.js';

t.test('through PgBouncer in transaction mode', { skip: missing('pgbouncer') }, async (t) => {
  const cluster = await startCluster(t);
  const folder = serverFolder(t);
  const port = await freePort();
  const settings = join(folder, 'pgbouncer.ini');
  writeFileSync(
    settings,
    `[databases]
    * = host=127.0.0.1 port=${cluster.port} user=postgres
    [pgbouncer]
    listen_addr = 127.0.0.1
    listen_port = ${port}
    unix_socket_dir =
    auth_type = any
    pool_mode = transaction
    default_pool_size = 4`,
  );
  const bouncer = spawn(find('pgbouncer') ?? '', [settings], { ...USER, stdio: 'ignore' });
  const exited = once(bouncer, 'exit');
  t.teardown(async () => {
    bouncer.kill('SIGKILL');
    await exited;
  });
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  await until(() =>
    query(url, 'SELECT 1').then(
      () => true,
      () => false,
    ),
  );

  t.test('statements that were prepared on other connections', async (t) => {
    const store = await openStore(t, { url });
    // Transactions keep the connections that the store has used, so it gets new ones.
    const others = await Promise.all(
      [1, 2].map(async () => {
        const other = new pg.Client(url);
        await other.connect();
        return other;
      }),
    );
    for (const other of others) await other.query('BEGIN');
    const outcomes = [1n, 2n].map(async (id) => {
      // Two batches, which fail at the same time.
      if (id === 2n) await nextTurn();
      return store.add({ ...FERN, id });
    });
    t.strictSame(await Promise.all(outcomes), ['created', 'created']);
    for (const other of others) await other.end();
    t.equal(await store.add({ ...FERN, id: 1n }), 'unchanged');
    t.strictSame(store.reports, []);
  });

  t.test('many plants on more connections than PgBouncer has', async (t) => {
    const stores = await Promise.all([1, 2, 3, 4].map(() => openStore(t, { url })));
    const ids = Array.from({ length: 1_000 }, (_, n) => BigInt(1_000 + n));
    const outcomes = await Promise.all(
      stores.flatMap((store) => ids.map((id) => store.add({ ...FERN, id }))),
    );
    t.equal(outcomes.filter((outcome) => outcome === 'created').length, 1_000);
  });
});
