import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { freePort } from '../service.js';
import {
  find,
  missing,
  query,
  serverFolder,
  startCluster,
  succeeds,
  until,
  USER,
} from './cluster.js';
import { openStore, plantsFrom } from './support.js';

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
  t.teardown(() => bouncer.kill('SIGKILL'));
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  await until(() => succeeds(query(url, 'SELECT 1')));

  const stores = await Promise.all([1, 2, 3, 4].map(() => openStore(t, { url })));
  const plants = plantsFrom(0, 1_000);
  const adding = stores.flatMap((store) => plants.map((plant) => store.add(plant)));
  const created = (await Promise.all(adding)).filter((outcome) => outcome === 'created');
  t.equal(created.length, 1_000);
  // Statements that were prepared on another connection are sent again, unprepared.
  t.match(cluster.log(), /prepared statement "\w+" (?:does not exist|already exists)/);
  for (const { reports } of stores) t.strictSame(reports, []);
});
