/* Restarts with a socket that outlives the program, as systemd keeps one. */
import { spawnSync } from 'node:child_process';
import { resolve } from 'node:path';

import t, { type Test } from 'tap';

import { selfSigned } from '../certificate.js';
import { connect, TOKEN } from '../client.js';
import { byLength } from '../length.js';
import { startLoad, type Load, type LoadClient } from './load.js';
import { asModule, launch, PATIENT, SERVER, type Process } from './program.js';

const PARENT = resolve('test/system/parent.py');
const skip = spawnSync('python3', ['--version']).status !== 0 && 'needs python3';
const RESTARTS = byLength(1, 5, 50);
const CLIENTS = 8;
/** More than Node's default backlog of 511. */
const CONNECTIONS = 1_000;

interface Parent extends Process {
  readonly port: number;
  /** Resolves to the process id of the program once that serves for the nth time. */
  serves(times: number): Promise<number>;
}

/** Starts a parent that passes a listening socket to the program, and again whenever that ends. */
async function startParent(
  t: Test,
  settings: Readonly<Record<string, string>> = {},
): Promise<Parent> {
  const parent = launch(t, {
    cwd: t.testdirName,
    env: { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: 'plants.jsonl', ...settings },
    under: ['env', '-u', 'PLANT_STORE_PORT'],
    command: ['python3', PARENT, process.execPath, '--import', asModule(PATIENT), SERVER],
  });
  const [, port] = await parent.says('stdout', /^(\d+)\n/);
  return Object.assign(parent, {
    port: Number(port),
    async serves(times: number) {
      await parent.says('stdout', new RegExp(`(?:^token: [^]*?){${times}}`, 'm'));
      const [, ...pids] = parent.stdout.match(/^\d+$/gm) ?? [];
      return Number(pids.at(-1));
    },
  });
}

/** Ends the program with a signal under load, several times, and resolves to the outcomes. */
async function restartUnderLoad(
  t: Test,
  client: LoadClient,
  signal: NodeJS.Signals,
  restarts: number,
): Promise<Load['outcomes']> {
  const { cert, key } = selfSigned();
  t.testdir({ cert, key });
  const tls = { PLANT_STORE_TLS_CERT: 'cert', PLANT_STORE_TLS_KEY: 'key' };
  const parent = await startParent(t, client.secure ? tls : {});
  const load = startLoad(parent.port, Array<LoadClient>(CLIENTS).fill(client));
  for (let restart = 1; restart <= restarts; restart++) {
    const pid = await parent.serves(restart);
    await load.goesOn();
    process.kill(pid, signal);
  }
  await parent.serves(restarts + 1);
  await load.goesOn();
  await load.stop();
  return load.outcomes;
}

const clients: Record<string, LoadClient> = {
  'a connection for each request': { secure: false, keepAlive: false },
  'connections that are kept': { secure: false, keepAlive: true },
  'TLS, a connection for each request': { secure: true, keepAlive: false },
  'TLS, connections that are kept': { secure: true, keepAlive: true },
};

for (const [what, client] of Object.entries(clients))
  t.test(`restarts under load refuse and reset nothing: ${what}`, { skip }, async (t) => {
    const outcomes = await restartUnderLoad(t, client, 'SIGTERM', RESTARTS);
    t.strictSame([...outcomes.keys()], ['200']);
    t.comment(`${RESTARTS} restarts, ${outcomes.get('200')} requests`);
  });

t.test('after SIGKILL under load, no connection is refused', { skip }, async (t) => {
  const client = { secure: false, keepAlive: false };
  const outcomes = await restartUnderLoad(t, client, 'SIGKILL', 1);
  for (const outcome of outcomes.keys()) t.match(outcome, /^(?:200|ECONNRESET)$/);
});

t.test('a thousand connections at once find room in an inherited socket', { skip }, async (t) => {
  t.testdir();
  const parent = await startParent(t);
  const pid = await parent.serves(1);
  process.kill(pid, 'SIGSTOP');
  const connections = Array.from({ length: CONNECTIONS }, () => connect(t, parent.port));
  t.equal((await Promise.all(connections)).length, CONNECTIONS);
});
