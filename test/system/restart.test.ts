/* Restarts with a socket that outlives the program, as systemd keeps one. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

import t, { type Test } from 'tap';

import { selfSigned } from '../certificate.js';
import { connect, TOKEN } from '../client.js';
import { byLength } from '../length.js';
import { startLoad, type Load, type LoadClient } from './load.js';
import { asModule, launch, PATIENT, SERVER } from './program.js';

const PARENT = resolve('test/system/parent.py');
const skip = spawnSync('python3', ['--version']).status !== 0 && 'needs python3';
const RESTARTS = byLength(1, 5, 50);
const CLIENTS = 16;
/** More than Node's default backlog of 511. */
const CONNECTIONS = 1_000;

interface Parent {
  readonly port: number;
  /** The process id of the program. */
  pid(): number;
  /** Ends the program with a signal, and resolves once it serves again. */
  restart(signal: NodeJS.Signals): Promise<void>;
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
  const serves = (times: number) =>
    parent.says('stdout', new RegExp(`(?:^token: [^]*?){${times}}`, 'm'));
  let starts = 1;
  await serves(starts);
  const pid = (): number => Number(parent.stdout.match(/^\d+$/gm)?.at(-1));
  return {
    port: Number(port),
    pid,
    async restart(signal) {
      process.kill(pid(), signal);
      await serves(++starts);
    },
  };
}

/** Ends the program with a signal under load, several times, and resolves to the outcomes. */
async function restartUnderLoad(
  parent: Parent,
  clients: readonly LoadClient[],
  signal: NodeJS.Signals,
  restarts: number,
): Promise<Load['outcomes']> {
  const load = startLoad(parent.port, clients);
  await load.goesOn();
  for (let restart = 1; restart <= restarts; restart++) {
    await parent.restart(signal);
    await load.goesOn();
  }
  await load.stop();
  return load.outcomes;
}

/** Clients of which every other one keeps its connection. */
const clients = (secure: boolean): readonly LoadClient[] =>
  Array.from({ length: CLIENTS }, (_, n) => ({ secure, keepAlive: n % 2 === 0 }));

t.test('a socket outlives the program', { skip }, async (t) => {
  const folder = t.testdir();
  const parent = await startParent(t);

  await t.test('restarts under load refuse and reset nothing', async (t) => {
    const outcomes = await restartUnderLoad(parent, clients(false), 'SIGTERM', RESTARTS);
    t.strictSame([...outcomes.keys()], ['200']);
    const lines = readFileSync(join(folder, 'plants.jsonl'), 'utf8').match(/\n/g);
    t.equal(lines?.length, outcomes.get('200'), 'each plant is stored once');
    t.comment(`${RESTARTS} restarts, ${outcomes.get('200')} requests`);
  });

  await t.test('after SIGKILL under load, no connection is refused', async (t) => {
    const each = { secure: false, keepAlive: false };
    const outcomes = await restartUnderLoad(parent, Array(CLIENTS).fill(each), 'SIGKILL', 1);
    for (const outcome of outcomes.keys()) t.match(outcome, /^(?:200|ECONNRESET)$/);
  });

  await t.test('a thousand connections at once find room in it', async (t) => {
    process.kill(parent.pid(), 'SIGSTOP');
    const connections = Array.from({ length: CONNECTIONS }, () => connect(t, parent.port));
    t.equal((await Promise.all(connections)).length, CONNECTIONS);
  });
});

t.test('restarts under load refuse and reset nothing, with TLS', { skip }, async (t) => {
  const { cert, key } = selfSigned();
  t.testdir({ cert, key });
  const parent = await startParent(t, {
    PLANT_STORE_TLS_CERT: 'cert',
    PLANT_STORE_TLS_KEY: 'key',
  });
  const outcomes = await restartUnderLoad(parent, clients(true), 'SIGTERM', RESTARTS);
  t.strictSame([...outcomes.keys()], ['200']);
});
