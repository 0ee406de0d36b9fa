import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';

import pg from 'pg';
import t from 'tap';

import { freePort } from '../service.js';
import {
  find,
  killAtEnd,
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
    default_pool_size = 2
    server_round_robin = 1`,
  );
  const bouncer = spawn(find('pgbouncer') ?? '', [settings], { ...USER, stdio: 'ignore' });
  killAtEnd(t, bouncer);
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  await until(() =>
    query(url, 'SELECT 1').then(
      () => true,
      () => false,
    ),
  );

  /** Keeps all connections of PgBouncer busy with transactions. */
  async function occupy(): Promise<pg.Client[]> {
    const clients = [1, 2].map(async () => {
      const client = new pg.Client(url);
      await client.connect();
      await client.query('BEGIN');
      return client;
    });
    return Promise.all(clients);
  }

  t.test('a statement that was prepared on another connection is sent unprepared', async (t) => {
    // Creates the table, so that then each statement is prepared on each connection.
    await openStore(t, { url: cluster.url });
    for (const client of await occupy()) await client.query('END').then(() => client.end());
    const store = await openStore(t, { url });
    const clients = await occupy();
    const outcomes = [1n, 2n].map(async (id) => {
      // Two batches, which fail at the same time.
      if (id === 2n) await nextTurn();
      return store.add({ ...FERN, id });
    });
    await nextTurn();
    await nextTurn();
    // PgBouncer replaces connections whose transactions are not over.
    for (const client of clients) await client.end();
    t.strictSame(await Promise.all(outcomes), ['created', 'created']);
    t.equal([...cluster.log().matchAll(/prepared statement "\w+" does not exist/g)].length, 2);
    t.equal(await store.add({ ...FERN, id: 1n }), 'unchanged');
    t.strictSame(store.reports, []);
  });

  t.test('plants are stored over more connections than PgBouncer has', async (t) => {
    const stores = await Promise.all([1, 2, 3, 4].map(() => openStore(t, { url })));
    const ids = Array.from({ length: 1_000 }, (_, n) => BigInt(1_000 + n));
    const outcomes = await Promise.all(
      stores.flatMap((store) => ids.map((id) => store.add({ ...FERN, id }))),
    );
    t.equal(outcomes.filter((outcome) => outcome === 'created').length, 1_000);
  });
});
