/*
 * Tests one process, and two instances with one database, behind a proxy that is configured as
 * documented; then a pooler between stores and their database.
 */
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { selfSigned } from '../helpers/certificate.js';
import { exchange, message, TOKEN } from '../helpers/client.js';
import { folderOutside } from '../helpers/command.js';
import { createClient, createLedger, startLoad } from '../helpers/load.js';
import { startNginx } from '../helpers/nginx.js';
import { DONE, follow, launch, start, type Process } from '../helpers/program.js';
import { freePort } from '../helpers/service.js';
import {
  find,
  missingForServers,
  query,
  serverFolder,
  startCluster,
  succeeds,
  until,
  USER,
} from './cluster.js';
import { openStore, plantsFrom } from './support.js';

/** Half of the clients keep their connections. */
const CLIENTS = Array.from({ length: 32 }, (_, n) => createClient({ keepAlive: n % 2 === 0 }));
/** Settings with which all but one of the requests at a time are answered with 503. */
const TOO_LITTLE_MEMORY = { PLANT_STORE_MAX_BODY: '512', PLANT_STORE_MAX_BUFFERED: '4096' };

const skip = missingForServers('nginx');

t.test('behind nginx with TLS, plants are stored', { skip }, async (t) => {
  const port = await freePort();
  const { key, cert } = selfSigned();
  const program = await start(t, {
    env: { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: join(folderOutside(t), 'plants.jsonl') },
  });
  const configuration = readFileSync('src/program/deploy/nginx.conf', 'utf8')
    .replace('127.0.0.1:8080', `127.0.0.1:${program.port}`)
    .replace('listen 443', `listen ${port}`)
    .replaceAll('/etc/ssl/', '');
  startNginx(t, configuration, { 'plants.pem': cert, 'plants.key': key });
  const ledger = createLedger();
  const clients = [createClient({ isSecure: true, keepAlive: true })];
  // Until nginx listens, connections are refused.
  await until(async () => (await ledger.post(port, ledger.next(), clients[0])) === 200);
  await startLoad(ledger, port, { clients, plants: 100 }).ended;
  t.equal(ledger.acknowledged, 101);
});

t.test('behind nginx with the limit enabled, a client gets 429 above it', { skip }, async (t) => {
  const { key, cert } = selfSigned();
  const program = await start(t, {
    env: { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: join(folderOutside(t), 'plants.jsonl') },
  });
  for (const name of ['nginx', 'nginx-postgres']) {
    const port = await freePort();
    const configuration = readFileSync(`src/program/deploy/${name}.conf`, 'utf8')
      .replaceAll('# limit_req', 'limit_req')
      .replace(/rate=\d+r\/s/, 'rate=1r/m')
      .replace(/burst=\d+/, 'burst=2')
      .replaceAll(/127\.0\.0\.1:8080|10\.0\.0\.\d:8080/g, `127.0.0.1:${program.port}`)
      .replace(/listen \d+/, `listen ${port}`)
      .replaceAll('/etc/ssl/', '');
    startNginx(t, configuration, { 'plants.pem': cert, 'plants.key': key });
    const ledger = createLedger();
    const client = createClient({ isSecure: name === 'nginx', keepAlive: true });
    const post = () => ledger.post(port, ledger.next(), client);
    // Until nginx listens, connections are refused.
    await until(async () => (await post()) === 200);
    t.strictSame([await post(), await post(), await post()], [200, 200, 429], name);
  }
});

t.test('behind nginx, restarts, kills and overload refuse no request', { skip }, async (t) => {
  const cluster = await startCluster(t);
  const [port, one, two] = await Promise.all([freePort(), freePort(), freePort()]);
  async function startInstance(port: number, settings = {}): Promise<Process> {
    const PLANT_STORE_PORT = String(port);
    const env = { PLANT_STORE_DATABASE_URL: cluster.url, PLANT_STORE_TOKEN: TOKEN };
    const instance = launch(t, { env: { ...env, PLANT_STORE_PORT, ...settings } });
    await instance.says('stdout', /^plant-store listening /);
    return instance;
  }
  async function stop(instance: Process): Promise<void> {
    instance.send('SIGTERM');
    t.strictSame(await instance.ended, DONE);
  }
  const first = await startInstance(one);
  const second = await startInstance(two);
  const configuration = readFileSync('src/program/deploy/nginx-postgres.conf', 'utf8')
    .replace('10.0.0.1:8080', `127.0.0.1:${one}`)
    .replace('10.0.0.2:8080', `127.0.0.1:${two}`)
    .replace('listen 80;', `listen ${port};`);
  startNginx(t, configuration);
  await until(() => succeeds(exchange(t, port, message({ body: '' }))));

  const ledger = createLedger();
  const load = startLoad(ledger, port, { clients: CLIENTS });
  const untilProgress = () => load.untilAcknowledged(100);
  await untilProgress();
  await stop(first);
  await untilProgress();
  const restarted = await startInstance(one);
  await untilProgress();
  second.send('SIGKILL');
  await untilProgress();
  await startInstance(two);
  await untilProgress();
  await stop(restarted);
  await untilProgress();
  const overloaded = await startInstance(one, TOO_LITTLE_MEMORY);
  await overloaded.says('stderr', /overloaded/);
  await untilProgress();
  await load.stop();
  t.strictSame([...ledger.outcomes.keys()], [200]);
});

t.test('PgBouncer in session mode works', { skip: missingForServers('pgbouncer') }, async (t) => {
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
    pool_mode = session`,
  );
  follow(t, spawn(find('pgbouncer') ?? '', [settings], USER));
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  await until(() => succeeds(query(url, 'SELECT 1')));
  // PgBouncer gives the later stores the connections of the earlier ones to the server.
  for (const expected of ['created', 'unchanged']) {
    const stores = await Promise.all([1, 2].map(() => openStore(t, { url })));
    const plants = plantsFrom(0, 1_000);
    for (const store of stores) {
      const outcomes = await Promise.all(plants.map((plant) => store.add(plant)));
      if (store === stores[0]) t.strictSame(new Set(outcomes), new Set([expected]));
      else t.strictSame(new Set(outcomes), new Set(['unchanged']));
      t.strictSame(store.reports, []);
    }
    await Promise.all(stores.map((store) => store.close()));
  }
});
