import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

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
  const port = await freePort();
  const settings = join(serverFolder(t), 'pgbouncer.ini');
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

  t.test('plants are stored over more connections than PgBouncer has', async (t) => {
    const stores = await Promise.all([1, 2, 3, 4].map(() => openStore(t, { url })));
    const ids = Array.from({ length: 1_000 }, (_, n) => BigInt(1_000 + n));
    const outcomes = await Promise.all(
      stores.flatMap((store) => ids.map((id) => store.add({ ...FERN, id }))),
    );
    t.equal(outcomes.filter((outcome) => outcome === 'created').length, 1_000);
    // Statements that were prepared on another connection are sent again, unprepared.
    t.match(cluster.log(), /prepared statement "\w+" (?:does not exist|already exists)/);
    for (const { reports } of stores) t.strictSame(reports, []);
  });
});
