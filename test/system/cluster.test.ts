/* The program as a worker of a cluster, as pm2 starts it. */
import cluster, { type Worker } from 'node:cluster';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { connect, exchange, message, TOKEN } from '../client.js';
import { freePort } from '../service.js';
import { asModule, follow, SERVER, serving, type Process, type Program } from './program.js';

const WELL = { code: 0, signal: null };
const FAILED = { code: 1, signal: null };

/** A preload: the program begins once the primary has disconnected its worker. */
const UNTIL_DISCONNECTED = `import cluster from 'node:cluster';
import { once } from 'node:events';
if (cluster.worker.isConnected()) await once(cluster.worker, 'disconnect');`;

interface Forked extends Process {
  readonly worker: Worker;
}

function fork(t: Test, env: Readonly<Record<string, string>> = {}, preload = ''): Forked {
  const execArgv = ['--import', asModule(preload)];
  cluster.setupPrimary({ exec: SERVER, args: [], execArgv, silent: true });
  const worker = cluster.fork({
    PLANT_STORE_PORT: '0',
    PLANT_STORE_TOKEN: TOKEN,
    PLANT_STORE_FILE: join(t.testdirName, 'plants.jsonl'),
    ...env,
  });
  return Object.assign(follow(t, worker.process), { worker });
}

async function start(t: Test, env?: Readonly<Record<string, string>>): Promise<Program & Forked> {
  const program = fork(t, env);
  return Object.assign(await serving(program, TOKEN), { worker: program.worker });
}

for (const signal of ['SIGTERM', 'SIGINT'] as const)
  t.test(`a worker serves plants, and shuts down cleanly on ${signal}`, async (t) => {
    t.testdir();
    const { worker, port, log, ended } = await start(t);
    t.equal((await exchange(t, port, message())).status, 200);
    worker.kill(signal);
    t.strictSame(await ended, WELL);
    t.equal(readFileSync(log, 'utf8').split('\n').length, 2);
  });

t.test('a second worker with the same log exits and reports the reason', async (t) => {
  t.testdir();
  const first = await start(t);
  const second = fork(t);
  t.strictSame(await second.ended, FAILED);
  t.match(
    second.stderr,
    `${first.log}: another process has the log open; one log serves one process`,
  );
  t.equal((await exchange(t, first.port, message())).status, 200);
});

t.test('workers with different logs do not share a port', async (t) => {
  t.testdir();
  const first = await start(t);
  const file = join(t.testdirName, 'other.jsonl');
  const second = await start(t, { PLANT_STORE_FILE: file });
  t.not(second.port, first.port);
  t.strictSame(await second.stop('SIGTERM'), WELL);

  const third = fork(t, { PLANT_STORE_FILE: file, PLANT_STORE_PORT: String(first.port) });
  t.strictSame(await third.ended, FAILED);
  t.match(third.stderr, `cannot listen on 127.0.0.1, port ${first.port}: address already in use`);
});

t.test('workers do not share the port of the monitor', async (t) => {
  t.testdir();
  const port = String(await freePort());
  const first = await start(t, { PLANT_STORE_MONITOR_PORT: port });
  await first.says('stdout', /^monitor: /m);
  const second = fork(t, {
    PLANT_STORE_FILE: join(t.testdirName, 'other.jsonl'),
    PLANT_STORE_MONITOR_PORT: port,
  });
  t.strictSame(await second.ended, FAILED);
  t.match(second.stderr, `PLANT_STORE_MONITOR_PORT: cannot listen on 127.0.0.1, port ${port}: `);
});

t.test('a socket that the primary has inherited has no effect in a worker', async (t) => {
  t.testdir();
  const { port } = await start(t, { LISTEN_PID: String(process.pid), LISTEN_FDS: '1' });
  t.equal((await exchange(t, port, message())).status, 200);
});

t.test('a worker closes excess connections and reports that', async (t) => {
  t.testdir();
  const program = await start(t, { PLANT_STORE_MAX_CONNECTIONS: '1' });
  const first = await connect(t, program.port);
  first.send(message());
  t.equal((await first.answer()).status, 200);
  const second = await connect(t, program.port);
  await second.closed;
  await program.says('stderr', /overloaded: 1 connections are open/);
});

const disconnections: Record<string, (worker: Worker) => void> = {
  'worker.disconnect()': (worker) => worker.disconnect(),
  'cluster.disconnect()': () => cluster.disconnect(),
  // As when all processes of a service get SIGTERM, and the primary disconnects on it.
  'SIGTERM, then worker.disconnect()': (worker) => {
    worker.kill();
    worker.disconnect();
  },
  'worker.disconnect(), then SIGTERM': (worker) => {
    worker.disconnect();
    worker.kill();
  },
};

for (const [what, disconnect] of Object.entries(disconnections))
  t.test(`${what}: a worker answers the requests in flight, then exits`, async (t) => {
    t.testdir();
    const { worker, port, log, ended } = await start(t);
    const client = await connect(t, port);
    client.send(message());
    t.equal((await client.answer()).status, 200);
    client.send(message().subarray(0, -1));
    disconnect(worker);
    await once(worker, 'disconnect');
    client.send(message().subarray(-1));
    t.match(await client.answer(), { status: 200, headers: { connection: 'close' } });
    t.strictSame(await ended, WELL);
    t.equal(readFileSync(log, 'utf8').split('\n').length, 2);
  });

t.test('a worker that is disconnected before it serves exits', async (t) => {
  t.testdir();
  const program = fork(t, {}, UNTIL_DISCONNECTED);
  await once(program.worker, 'online');
  program.worker.disconnect();
  t.strictSame(await program.ended, WELL);
  t.equal(program.stdout, '');
  t.strictSame(readdirSync(t.testdirName), ['plants.jsonl'], 'the lock is released');
});
