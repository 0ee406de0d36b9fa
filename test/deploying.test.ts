import { execFile, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';

import t from 'tap';
import { parseAllDocuments } from 'yaml';

import { DEFAULT_LIMITS } from '../dist/http/limits.js';
import { encodeRecord } from '../dist/log/record.js';
import { EXIT } from '../dist/program/exit.js';
import { readServerSettings } from '../dist/program/settings/server.js';
import { SETTINGS } from '../dist/program/settings/table.js';
import { SHUTDOWN_MS } from '../dist/program/signals.js';
import { TOKEN } from './client.js';
import { exactly } from './exactly.js';
import { FIXED_MIB } from './hostile/memory.js';
import { block, blocks, read, settingsIn } from './readme.js';
import { freePort } from './service.js';
import { runHere, startHere } from './program/here.js';
import { DONE, launch, serving, start } from './system/program.js';

const [SERVICE = '', TARGETS = ''] = blocks('Kubernetes', 'yaml');
const [RELOAD = '', REPAIR = ''] = blocks('Kubernetes', 'sh');
const [UNIT = '', , UNIT_FOR_POSTGRES = ''] = blocks('systemd', 'ini');

const MANIFESTS = new Map(
  parseAllDocuments(SERVICE)
    .map((document) => document.toJS() as { readonly kind: string })
    .map((manifest) => [manifest.kind, manifest]),
);

/** The only container of a Deployment, as far as the tests read it. */
interface Container {
  readonly command: readonly string[];
  readonly env: readonly { readonly name: string; readonly value: string }[];
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
  readonly lifecycle: { readonly preStop: { readonly sleep: { readonly seconds: number } } };
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
}

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
}

/** What is at a path of a manifest, such as `/spec/containers/0`. */
const at = (manifest: unknown, path: string): unknown =>
  path
    .split('/')
    .slice(1)
    .reduce((parent, name) => (parent as Record<string, unknown>)[name], manifest);

const POD = '/spec/template/spec';
const containerOf = (deployment: unknown): Container =>
  at(deployment, `${POD}/containers/0`) as Container;
const CONTAINER = containerOf(MANIFESTS.get('Deployment'));
const ENV = Object.fromEntries(CONTAINER.env.map(({ name, value }) => [name, value]));

const noSystemd =
  spawnSync('systemd-analyze', ['--version']).status !== 0 && 'needs systemd-analyze';

/** The last value of each directive of a unit. */
function directives(unit: string): ReadonlyMap<string, string> {
  return new Map(
    [...unit.matchAll(/^(\w+)=(.*)$/gm)].map(([, key = '', value = '']) => [key, value]),
  );
}

t.test(
  'systemd accepts the units, and rates their exposure low',
  { skip: noSystemd },
  async (t) => {
    const folder = t.testdir();
    const [service = '', ...more] = blocks('systemd', 'ini').map((unit) => {
      const path = join(folder, /^# \/etc\/systemd\/system\/(\S+)/.exec(unit)?.[1] ?? '');
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, unit.replace('/usr/bin/node', process.execPath));
      return path;
    });
    const analyze = (...args: readonly string[]) =>
      spawnSync('systemd-analyze', args, { encoding: 'utf8' });
    const units = more.filter((path) => !path.endsWith('.conf'));
    const verified = analyze('verify', service, ...units);
    t.equal(verified.status, 0, verified.stderr);
    t.notMatch(verified.stderr, 'plant-store');
    // At 2.0 or less, of 10.
    const rated = analyze('security', '--offline=yes', '--threshold=20', '--no-pager', service);
    t.equal(rated.status, 0, /→.*/.exec(rated.stdout)?.[0] ?? rated.stderr);
  },
);

t.test('systemd-socket-activate starts the program', { skip: noSystemd }, async (t) => {
  const cwd = t.testdir({ dist: t.fixture('symlink', resolve('dist')) });
  const port = await freePort();
  const activate = block('systemd', 'sh');
  const file = 'elsewhere.jsonl';
  const given = activate.replace('8080', String(port)).replace('data/plants.jsonl', file);
  const program = launch(t, { cwd, command: ['sh', '-euc', `exec ${given}`] });
  await program.says('stderr', /^Listening on /);
  t.equal((await fetch(`http://127.0.0.1:${port}/plants`)).status, 401);
  const { url, log } = await serving(program);
  t.match(url, `http://127.0.0.1:${port}`);
  t.equal(log, join(cwd, file), 'settings reach it');
});

t.test('the program starts, reloads and stops with the unit, and reloads in a pod', async (t) => {
  const unit = directives(UNIT);
  t.match(unit.get('ExecStart'), /node \S+\/dist\/server\.js$/);
  t.equal(unit.get('RestartPreventExitStatus'), String(EXIT.usage));

  const cwd = t.testdir();
  const settings = settingsIn(UNIT);
  const path = settings.PLANT_STORE_FILE ?? '';
  t.match(block('Prometheus', 'yaml'), `127.0.0.1:${settings.PLANT_STORE_MONITOR_PORT}'`);
  const own = { PLANT_STORE_FILE: `${cwd}/${path}`, PLANT_STORE_MONITOR_PORT: '0' };
  mkdirSync(dirname(own.PLANT_STORE_FILE), { recursive: true });
  const program = await start(t, { cwd, env: { ...settings, ...own } });
  t.match(program.log, new RegExp(`${path}$`));
  t.match(read('.github/DEPLOYING.md'), `the token is in \`${join(dirname(path), 'token')}\``);
  t.ok(existsSync(join(dirname(program.log), 'token')));
  const [, reloadPod = ''] = /-- sh -c '(.* )1'\n$/.exec(RELOAD) ?? [];
  const reloads = [unit.get('ExecReload') ?? '', `${reloadPod}${program.pid}`];
  // In a slim image, no program can be found.
  const env = { PATH: '', MAINPID: String(program.pid) };
  for (const [n, reload] of reloads.entries()) {
    await promisify(execFile)('/bin/sh', ['-euc', reload], { env });
    await program.says('stderr', new RegExp(`(?:accepts 1 token\\n[^]*){${n + 1}}`));
  }
  t.strictSame(await program.stop('SIGTERM'), DONE);
});

t.test('the program for PostgreSQL accepts the settings in its file for systemd', async (t) => {
  const credentials = [...UNIT_FOR_POSTGRES.matchAll(/^LoadCredential=(\w+):/gm)].map(
    ([, name = '']) => name,
  );
  const folder = t.testdir(Object.fromEntries(credentials.map((name) => [name, 'a-secret'])));
  const settings = await readServerSettings(settingsIn(UNIT_FOR_POSTGRES.replaceAll('%d', folder)));
  t.match(settings.tokenSource, { kind: 'file', tokens: exactly('a-secret') });
  t.equal(await settings.PLANT_STORE_DATABASE_PASSWORD_FILE?.(), 'a-secret');
});

t.test('the manifests refer to names that exist, and to settings of the program', async (t) => {
  const kinds = ['Secret', 'PersistentVolumeClaim', 'Service', 'Deployment'];
  t.strictSame([...MANIFESTS.keys()], kinds);
  const [secret, claim, service, deployment] = kinds.map((kind) => MANIFESTS.get(kind));
  const labels = at(deployment, '/spec/template/metadata/labels') as { app: string };
  t.strictSame(at(service, '/spec/selector'), labels);
  t.strictSame(at(deployment, '/spec/selector/matchLabels'), labels);
  t.match(TARGETS, `regex: ${labels.app};monitor\n`);

  const [data, tokens] = CONTAINER.volumeMounts;
  const claimName = at(claim, '/metadata/name');
  const secretName = at(secret, '/metadata/name');
  t.strictSame(at(deployment, `${POD}/volumes`), [
    { name: data?.name, persistentVolumeClaim: { claimName } },
    { name: tokens?.name, secret: { secretName } },
  ]);
  t.match(block('A container', 'dockerfile'), `\nVOLUME ${data?.mountPath}\n`);
  const [file] = Object.keys(at(secret, '/stringData') as object);
  t.equal(ENV.PLANT_STORE_TOKEN_FILE, `${tokens?.mountPath}/${file}`);
  for (const name of Object.keys(ENV)) t.ok(name in SETTINGS, name);

  t.match(at(service, '/spec/ports'), { length: 1, 0: { targetPort: 'http' } });
  t.strictSame(
    CONTAINER.ports.map(({ name, containerPort }) => [name, String(containerPort)]),
    [
      ['http', SETTINGS.PLANT_STORE_PORT.fallback],
      ['monitor', ENV.PLANT_STORE_MONITOR_PORT],
    ],
  );
});

t.test('the pod has the time and the memory that the program may take', async (t) => {
  const GRACE_SECONDS = 30;
  t.ok(CONTAINER.lifecycle.preStop.sleep.seconds + SHUTDOWN_MS / 1_000 < GRACE_SECONDS);
  t.match(CONTAINER, { resources: { limits: { memory: '1Gi' }, requests: { memory: '1Gi' } } });
  const bytes = FIXED_MIB * 2 ** 20 + DEFAULT_LIMITS.maxBufferedBytes + 10e6 * 40;
  t.ok(bytes <= 2 ** 30, `${bytes} bytes, with the index of 10 million plants`);
});

t.test('the probes are pages of the monitor', async (t) => {
  const cwd = t.testdir({ tokens: TOKEN });
  const env = { PLANT_STORE_TOKEN_FILE: 'tokens', PLANT_STORE_MONITOR_PORT: '0' };
  const program = await startHere(t, { cwd, env: { ...ENV, ...env } });
  const [, port = ''] = await program.says('stdout', /^monitor: http:\/\/0\.0\.0\.0:(\d+)\n/m);
  for (const { httpGet } of [CONTAINER.livenessProbe, CONTAINER.readinessProbe]) {
    t.equal(httpGet.port, 'monitor');
    const { status } = await fetch(`http://127.0.0.1:${port}${httpGet.path}`);
    t.equal(status, 200, httpGet.path);
  }
});

/** The operations of JSON Patch that the documents use. */
interface Operation {
  readonly op: 'add' | 'remove';
  readonly path: string;
  readonly value?: unknown;
}

t.test('a pod with the documented patch repairs the log', async (t) => {
  const [, patch = ''] = /--patch='([^']*)'/.exec(REPAIR) ?? [];
  const patched = structuredClone(MANIFESTS.get('Deployment'));
  for (const { op, path, value } of JSON.parse(patch) as readonly Operation[]) {
    const parent = at(patched, dirname(path)) as Record<string, unknown>;
    const name = basename(path);
    t.equal(name in parent, op === 'remove', `${op} ${path}`);
    parent[name] = value;
  }
  const container = containerOf(patched);
  t.equal(container.livenessProbe, undefined, 'nothing listens for it');

  const ivy = encodeRecord({ id: 1n, name: 'ivy' });
  const cwd = t.testdir({ data: { 'plants.jsonl': `${ivy}x\n` } });
  const [node, script = '', ...args] = container.command;
  t.equal(node, 'node');
  t.ok(existsSync(script.replace('/app', '.')));
  const repaired = await runHere(t, { cwd, env: ENV, args });
  t.match(repaired, { code: 0, stdout: /kept 1 plant, moved 1 damaged line/ });
  t.equal(readFileSync(join(cwd, 'data/plants.jsonl'), 'utf8'), ivy);
});
