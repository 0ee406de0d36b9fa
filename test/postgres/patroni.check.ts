/*
 * Three nodes under Patroni in synchronous mode: ten leaders are killed under load.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

import t, { type Test } from 'tap';

import { isLong } from '../length.js';
import { freePort } from '../service.js';
import { find, killAtEnd, missing, serverFolder, stopAtEnd, until, USER } from './cluster.js';
import { startLoad } from './load.js';
import { openStore } from './support.js';

const KILLS = 10;
const NODES = 3;

t.setTimeout(1_800_000);

/** Starts a command as the user of the servers until the end of the test. */
function start(t: Test, command: string, ...args: readonly string[]): ChildProcess {
  const child = spawn(find(command) ?? command, args, { ...USER, cwd: '/', stdio: 'ignore' });
  killAtEnd(t, child);
  return child;
}

interface Node {
  readonly name: string;
  readonly url: string;
  /** Where Patroni answers. */
  readonly restUrl: string;
  /** Starts Patroni, which starts the server. */
  run(): void;
  killServer(): void;
  killPatroni(): void;
}

async function createNode(t: Test, name: string, etcd: number): Promise<Node> {
  const folder = serverFolder(t);
  const [port, restPort] = [await freePort(), await freePort()];
  const data = join(folder, 'data');
  stopAtEnd(t, data);
  const access = ['host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust'];
  const settings = {
    scope: 'plants',
    name,
    restapi: { listen: `127.0.0.1:${restPort}`, connect_address: `127.0.0.1:${restPort}` },
    etcd3: { host: `127.0.0.1:${etcd}` },
    bootstrap: {
      dcs: {
        ttl: 20,
        loop_wait: 2,
        retry_timeout: 5,
        // A killed server is replaced, not restarted.
        primary_start_timeout: 0,
        master_start_timeout: 0,
        synchronous_mode: true,
        postgresql: { use_pg_rewind: true },
      },
      initdb: [{ encoding: 'UTF8' }, { locale: 'C' }, { auth: 'trust' }, 'data-checksums'],
    },
    postgresql: {
      listen: `127.0.0.1:${port}`,
      connect_address: `127.0.0.1:${port}`,
      data_dir: data,
      bin_dir: dirname(find('initdb') ?? ''),
      authentication: {
        superuser: { username: 'postgres', password: 'postgres' },
        replication: { username: 'replicator', password: 'replicator' },
      },
      pg_hba: access,
      pgpass: join(folder, 'pgpass'),
      parameters: { unix_socket_directories: folder },
    },
  };
  const path = join(folder, 'patroni.yml');
  // JSON is YAML.
  writeFileSync(path, JSON.stringify(settings));
  let patroni: ChildProcess | undefined;
  const node: Node = {
    name,
    restUrl: `http://127.0.0.1:${restPort}`,
    url: `postgres://postgres@127.0.0.1:${port}/postgres`,
    run() {
      patroni = start(t, 'patroni', path);
    },
    killServer() {
      const [pid = ''] = readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n');
      process.kill(Number(pid), 'SIGKILL');
    },
    killPatroni() {
      patroni?.kill('SIGKILL');
    },
  };
  return node;
}

interface Member {
  readonly name: string;
  readonly role: string;
}

/** The node that takes writes, once Patroni knows a standby that may take its place. */
async function leaderOf(nodes: readonly Node[]): Promise<Node> {
  let leader: Node | undefined;
  await until(async () => {
    for (const { restUrl } of nodes)
      try {
        const response = await fetch(`${restUrl}/cluster`);
        const { members } = (await response.json()) as { members: readonly Member[] };
        const { name } = members.find(({ role }) => role === 'leader') ?? {};
        leader = nodes.find((node) => node.name === name);
        return leader !== undefined && members.some(({ role }) => role === 'sync_standby');
      } catch {
        // Patroni does not run on this node.
      }
    return false;
  });
  if (!leader) throw new Error('there is no leader');
  return leader;
}

const skip = isLong ? missing('patroni', 'etcd') : 'needs TEST_LENGTH=long';

t.test(`${KILLS} leaders under Patroni are killed`, { skip }, async (t) => {
  const [client, peer] = [await freePort(), await freePort()];
  const urlOf = (port: number): string => `http://127.0.0.1:${port}`;
  start(
    t,
    'etcd',
    ...['--data-dir', join(serverFolder(t), 'etcd'), '--name', 'etcd'],
    ...['--listen-client-urls', urlOf(client), '--advertise-client-urls', urlOf(client)],
    ...['--listen-peer-urls', urlOf(peer), '--initial-advertise-peer-urls', urlOf(peer)],
    ...['--initial-cluster', `etcd=${urlOf(peer)}`],
  );
  const nodes: Node[] = [];
  for (let n = 1; n <= NODES; n++) nodes.push(await createNode(t, `node${n}`, client));
  for (const node of nodes) node.run();
  await leaderOf(nodes);

  const hosts = nodes.map(({ url }) => new URL(url).host).join();
  const url = `postgres://postgres@${hosts}/postgres`;
  const load = startLoad(await Promise.all([1, 2].map(() => openStore(t, { url }))));
  for (let kill = 1; kill <= KILLS; kill++) {
    await load.proceeds();
    const leader = await leaderOf(nodes);
    const withPatroni = kill % 2 === 0;
    const what = withPatroni ? 'server and Patroni' : 'server';
    if (withPatroni) leader.killPatroni();
    leader.killServer();
    const killed = performance.now();
    await load.proceeds();
    const seconds = ((performance.now() - killed) / 1_000).toFixed(1);
    t.comment(`${what} killed: plants were stored again after ${seconds} s`);
    if (withPatroni) leader.run();
  }
  await load.losesNothing(t, (await leaderOf(nodes)).url);
});
