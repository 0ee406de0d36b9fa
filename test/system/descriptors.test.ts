/* The program with few file descriptors. */
import { spawnSync } from 'node:child_process';

import t, { type Test } from 'tap';

import { connect, exchange, message, TOKEN, type Client } from '../client.js';
import { scrape } from '../metrics.js';
import { failsToRun, start, type Program } from './program.js';

/** The program keeps 200 for everything but connections. */
const FEW = 230;

const prlimit = (limit: number): string[] => ['prlimit', `--nofile=${limit}`];
const [command = '', ...args] = prlimit(FEW);
const skip = spawnSync(command, [...args, 'true']).status !== 0 && 'needs prlimit';

const env = { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: 'plants.jsonl' };

/** Starts the program with a monitor. */
async function startWithFew(t: Test): Promise<Program & { readonly monitor: URL }> {
  const program = await start(t, {
    cwd: t.testdir(),
    env: { ...env, PLANT_STORE_MONITOR_PORT: '0' },
    under: prlimit(FEW),
  });
  const [, url = ''] = await program.says('stdout', /^monitor: (.+)$/m);
  return Object.assign(program, { monitor: new URL(url) });
}

function connectMany(t: Test, port: number): Promise<Client[]> {
  return Promise.all(Array.from({ length: FEW }, () => connect(t, port)));
}

t.test('connections are limited to the descriptors that are there', { skip }, async (t) => {
  const program = await startWithFew(t);
  const [, limit = ''] = await program.says(
    'stderr',
    /^plant-store: PLANT_STORE_MAX_CONNECTIONS: lowered to (\d+), because .+\n/,
  );
  const clients = await connectMany(t, program.port);
  for (const client of clients) client.send(message());
  const answers = await Promise.allSettled(clients.map((client) => client.answer()));
  const answered = answers.filter(({ status }) => status === 'fulfilled').length;
  t.equal(answered, Number(limit), 'each connection that is accepted works');
  await program.says('stderr', new RegExp(`overloaded: ${limit} connections are open`));

  const samples = await scrape(program.monitor.origin);
  t.equal(samples.get('plant_store_connections_limit'), answered);
  t.equal(samples.get('plant_store_connections'), answered);
  t.equal(samples.get('plant_store_connections_dropped_total'), FEW - answered);
  t.strictSame(await program.stop('SIGTERM'), { code: 0, signal: null });
});

t.test('connections to the monitor leave descriptors for the service', { skip }, async (t) => {
  const program = await startWithFew(t);
  const clients = await connectMany(t, Number(program.monitor.port));
  // One is closed once there are too many.
  await Promise.race(clients.map(({ closed }) => closed));
  t.equal((await exchange(t, program.port, message())).status, 200);
});

t.test('too few descriptors are named at the start', { skip }, async (t) => {
  const options = { cwd: t.testdir(), env, under: prlimit(FEW) };
  const preload = `process.report.getReport = () => ({ userLimits: { open_files: { soft: 200 } } });`;
  const fault = 'ulimit -n: must be more than 200, the files that the program opens itself';
  await failsToRun(t, 1, [fault], { ...options, preload });
});

t.test('without a limit of descriptors, that of connections is kept', { skip }, async (t) => {
  for (const report of ['{}', `{ userLimits: { open_files: { soft: 'unlimited' } } }`]) {
    const preload = `process.report.getReport = () => (${report});`;
    const program = await start(t, { cwd: t.testdir(), env, preload });
    t.strictSame(await program.stop('SIGTERM'), { code: 0, signal: null });
    t.equal(program.stderr, '');
  }
});
