/* Restarts the program with a socket that outlives it, as systemd keeps one. */
import { execFileSync, spawnSync } from 'node:child_process';
import { appendFileSync, chmodSync, cpSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

import t, { type Test } from 'tap';

import { selfSigned } from '../helpers/certificate.js';
import { connect, TOKEN } from '../helpers/client.js';
import { block } from '../helpers/documents.js';
import { byLength } from '../helpers/effort.js';
import {
  createClient,
  createLedger,
  startLoad,
  type LoadClient,
  type Ledger,
} from '../helpers/load.js';
import { asModule, launch, PATIENT, SERVER, type Process } from '../helpers/program.js';

const PARENT = resolve('test/system/parent.py');
const skip = spawnSync('python3', ['--version']).status !== 0 && 'needs python3';
const RESTARTS = byLength(1, 5, 50);
const CLIENTS = 16;
/** More than Node's default backlog of 511. */
const CONNECTIONS = 1_000;

interface Parent extends Pick<Process, 'says'> {
  readonly port: number;
  /** The process id of the program. */
  pid(): number;
  /** Ends the program with a signal, and resolves once it serves again. */
  restart(signal: NodeJS.Signals): Promise<void>;
}

/**
 * Starts a parent process that passes a listening socket to the program, and starts the program
 * again whenever it ends.
 */
async function startParent(
  t: Test,
  settings: Readonly<Record<string, string>> = { PLANT_STORE_TOKEN: TOKEN },
  script = SERVER,
): Promise<Parent> {
  const parent = launch(t, {
    cwd: t.testdirName,
    env: { PLANT_STORE_FILE: 'plants.jsonl', ...settings },
    under: ['env', '-u', 'PLANT_STORE_PORT'],
    command: ['python3', PARENT, process.execPath, '--import', asModule(PATIENT), script],
  });
  const [, port] = await parent.says('stdout', /^(\d+)\n/);
  const serves = (times: number) =>
    parent.says('stdout', new RegExp(`^(?:(?:(?!token: ).*\\n)*token: .*\\n){${times}}`));
  let starts = 1;
  await serves(starts);
  const pid = (): number => Number(parent.stdout.match(/^\d+$/gm)?.at(-1));
  return {
    says: (output, pattern) => parent.says(output, pattern),
    port: Number(port),
    pid,
    async restart(signal) {
      process.kill(pid(), signal);
      await serves(++starts);
    },
  };
}

/**
 * Ends the program with a signal under load, several times. Resolves to the plants that were sent.
 */
async function restartUnderLoad(
  parent: Parent,
  clients: readonly LoadClient[],
  signal: NodeJS.Signals,
  restarts: number,
): Promise<Ledger> {
  const ledger = createLedger();
  const load = startLoad(ledger, parent.port, { clients });
  await load.untilAcknowledged(100);
  for (let restart = 1; restart <= restarts; restart++) {
    await parent.restart(signal);
    await load.untilAcknowledged(100);
  }
  await load.stop();
  return ledger;
}

/** Clients of which every other one keeps its connection. */
const clients = (isSecure: boolean): readonly LoadClient[] =>
  Array.from({ length: CLIENTS }, (_, n) => createClient({ isSecure, keepAlive: n % 2 === 0 }));

t.test('a socket outlives the program', { skip }, async (t) => {
  const folder = t.testdir();
  const parent = await startParent(t);

  await t.test('restarts under load refuse and reset nothing', async (t) => {
    const ledger = await restartUnderLoad(parent, clients(false), 'SIGTERM', RESTARTS);
    t.strictSame([...ledger.outcomes.keys()], [200]);
    ledger.expectNothingLost(join(folder, 'plants.jsonl'));
    t.comment(`${RESTARTS} restarts, ${ledger.acknowledged} requests`);
  });

  await t.test('after SIGKILL under load, no connection is refused', async (t) => {
    const unkept = Array.from({ length: CLIENTS }, () => createClient());
    const { outcomes } = await restartUnderLoad(parent, unkept, 'SIGKILL', 1);
    for (const outcome of outcomes.keys()) t.match(String(outcome), /^(?:200|ECONNRESET)$/);
  });

  await t.test('a thousand connections at once find room in the socket', async (t) => {
    process.kill(parent.pid(), 'SIGSTOP');
    const connections = Array.from({ length: CONNECTIONS }, () => connect(t, parent.port));
    t.equal((await Promise.all(connections)).length, CONNECTIONS);
  });
});

/**
 * Replacements for the programs in the documented commands. In place of a build, the next version
 * is moved to `dist`.
 */
const COMMANDS = {
  git: 'true',
  npm: `[ "$1" = ci ] && ln -s '${resolve('node_modules')}' . || mv next dist`,
  systemctl: 'kill "$PID"',
};

t.test(
  'an upgrade in place under load refuses and resets nothing, with TLS',
  { skip },
  async (t) => {
    const bin = Object.entries(COMMANDS).map(([name, script]) => [name, `#!/bin/sh\n${script}\n`]);
    const folder = t.testdir({ bin: Object.fromEntries(bin) as Record<string, string> });
    for (const name of Object.keys(COMMANDS)) chmodSync(join(folder, 'bin', name), 0o755);
    const dist = join(folder, 'dist');
    const next = join(folder, 'next');
    for (const copy of [dist, next]) cpSync('dist', copy, { recursive: true });
    cpSync('package.json', join(folder, 'package.json'));
    appendFileSync(join(next, 'program/version.js'), `\nconsole.log('upgraded');\n`);
    symlinkSync(resolve('node_modules'), join(folder, 'node_modules'));
    const files = { token: TOKEN, ...selfSigned() };
    for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);

    const settings = {
      PLANT_STORE_TOKEN_FILE: 'token',
      PLANT_STORE_TLS_CERT: 'cert',
      PLANT_STORE_TLS_KEY: 'key',
    };
    const parent = await startParent(t, settings, join(dist, 'server.js'));
    const ledger = createLedger();
    const load = startLoad(ledger, parent.port, { clients: clients(true) });
    for (const name of ['dist', 'node_modules']) rmSync(join(folder, name), { recursive: true });
    process.kill(parent.pid(), 'SIGHUP');
    await parent.says('stderr', /accepts 1 token\n/);
    await load.untilAcknowledged(100);

    const commands = block('Upgrading', 'console').replaceAll(/^# /gm, '');
    const PATH = `${join(folder, 'bin')}:${process.env.PATH}`;
    const env = { PATH, PID: String(parent.pid()) };
    execFileSync('sh', ['-euc', commands.replace('/opt/plant-store', folder)], { env });
    await parent.says('stdout', /^upgraded\n[^]*^token: /m);
    await load.untilAcknowledged(100);
    await load.stop();
    t.strictSame([...ledger.outcomes.keys()], [200]);
  },
);
