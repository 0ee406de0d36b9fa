/* Runs the program with as many descriptors as the document demands: 200 more than connections. */
import { spawnSync } from 'node:child_process';

import t, { type Test } from 'tap';

import { MONITOR_LIMITS } from '../../dist/program/server/monitor.js';
import { connect, message, type Client } from '../helpers/client.js';
import { DONE, ENV, start } from '../helpers/program.js';

const CONNECTIONS = 30;
const under = ['prlimit', `--nofile=${CONNECTIONS + 200}`];
const skip = spawnSync('prlimit', [...under.slice(1), 'true']).status !== 0 && 'needs prlimit';

/** Opens one connection more than a server accepts. Resolves to those that it accepts. */
async function fill(t: Test, port: number, maximum: number): Promise<Client[]> {
  const clients = [];
  for (let n = 0; n < maximum; n++) clients.push(await connect(t, port));
  await (
    await connect(t, port)
  ).closed;
  return clients;
}

t.test('200 descriptors are enough for all but connections', { skip }, async (t) => {
  const program = await start(t, {
    cwd: t.testdir(),
    env: {
      ...ENV,
      PLANT_STORE_MONITOR_PORT: '0',
      PLANT_STORE_MAX_CONNECTIONS: `${CONNECTIONS}`,
    },
    under,
  });
  const [, monitor = ''] = await program.says('stdout', /^monitor: (.+)$/m);
  const clients = await fill(t, program.port, CONNECTIONS);
  await fill(t, Number(new URL(monitor).port), MONITOR_LIMITS.maxConnections);
  for (const client of clients) client.send(message());
  for (const client of clients) t.match(await client.answer(), { status: 200 });
  t.strictSame(await program.stop('SIGTERM'), DONE);
});
