/* The program with few file descriptors. */
import { spawnSync } from 'node:child_process';

import t, { type Test } from 'tap';

import { connect, exchange, message, type Client } from '../client.js';
import { scrape } from '../metrics.js';
import { DONE, ENV, start } from './program.js';

/** The program keeps 200 for everything but connections. */
const FEW = 230;

const prlimit = (limit: number): string[] => ['prlimit', `--nofile=${limit}`];
const [command = '', ...args] = prlimit(FEW);
const skip = spawnSync(command, [...args, 'true']).status !== 0 && 'needs prlimit';

function connectMany(t: Test, port: number): Promise<Client[]> {
  return Promise.all(Array.from({ length: FEW }, () => connect(t, port)));
}

t.test('connections are limited to the descriptors that are there', { skip }, async (t) => {
  const program = await start(t, {
    cwd: t.testdir(),
    env: { ...ENV, PLANT_STORE_MONITOR_PORT: '0' },
    under: prlimit(FEW),
  });
  const [, monitor = ''] = await program.says('stdout', /^monitor: (.+)$/m);
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

  const samples = await scrape(monitor);
  t.equal(samples.get('plant_store_connections_limit'), answered);
  t.equal(samples.get('plant_store_connections'), answered);
  t.equal(samples.get('plant_store_connections_dropped_total'), FEW - answered);

  for (const client of clients) client.socket.destroy();
  const scrapers = await connectMany(t, Number(new URL(monitor).port));
  // One is closed once there are too many.
  await Promise.race(scrapers.map(({ closed }) => closed));
  await t.resolves(exchange(t, program.port, message()), 'those to the monitor leave some');
  t.strictSame(await program.stop('SIGTERM'), DONE);
});
