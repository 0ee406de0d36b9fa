import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
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
import { selfSigned } from './certificate.js';
import { TOKEN } from './client.js';
import { exactly } from './exactly.js';
import { FIXED_MIB } from './hostile/memory.js';
import { block, blocks, read, settingsIn } from './readme.js';
import { freePort } from './service.js';
import { DONE, launch, runHere, SERVER, serving, start, startHere } from './system/program.js';

const TARGETS = block('Kubernetes', 'yaml');
const [IMPORT = '', RELOAD = '', REPAIR = ''] = blocks('Kubernetes', 'sh');
const [UNIT = '', , ...EXTENSIONS] = blocks('systemd', 'ini');

/** The manifests in a file, by their kinds. */
function manifestsIn(file: string): ReadonlyMap<string, unknown> {
  const documents = parseAllDocuments(readFileSync(join('.github', file), 'utf8'));
  const manifests = documents.map((document) => document.toJS() as { readonly kind: string });
  return new Map(manifests.map((manifest) => [manifest.kind, manifest]));
}

const LOG = manifestsIn('kubernetes-log.yml');
const POSTGRES = manifestsIn('kubernetes-postgres.yml');

/** The only container of a Deployment or a Job, as far as the tests read it. */
interface Container {
  readonly command?: readonly string[];
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
const containerOf = (manifest: unknown): Container =>
  at(manifest, `${POD}/containers/0`) as Container;
const envOf = ({ env }: Container): Record<string, string> =>
  Object.fromEntries(env.map(({ name, value }) => [name, value]));
const CONTAINER = containerOf(LOG.get('Deployment'));
const ENV = envOf(CONTAINER);
const DEPLOYMENTS = [LOG, POSTGRES].map((manifests) => manifests.get('Deployment'));

const noSystemd =
  spawnSync('systemd-analyze', ['--version']).status !== 0 && 'needs systemd-analyze';

/** The last value of each directive of a unit. */
function directives(unit: string): ReadonlyMap<string, string> {
  return new Map(
    [...unit.matchAll(/^(\w+)=(.*)$/gm)].map(([, key = '', value = '']) => [key, value]),
  );
}

t.test('systemd accepts the units, and rates them as safe', { skip: noSystemd }, async (t) => {
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
});

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

/** Someone else. */
const USER = 65_534;
const AS_USER = ['setpriv', `--reuid=${USER}`, `--regid=${USER}`, '--clear-groups'];
const noUser =
  spawnSync('env', [...AS_USER, 'test', '-r', 'dist/server.js']).status !== 0 &&
  'needs root, and a folder that others may read';

t.test(
  'root enables the units, and imports a log that the service can open',
  { skip: noUser },
  async (t) => {
    const folder = t.testdir({
      bin: { systemctl: '#!/bin/sh\necho "$0 $@"\n' },
      state: {},
      'plants.backup.jsonl': encodeRecord({ id: 1n, name: 'ivy' }),
    });
    const state = join(folder, 'state');
    chmodSync(join(folder, 'bin/systemctl'), 0o755);
    chownSync(state, USER, USER);
    const here = (text: string): string =>
      text
        .replaceAll('/usr/bin/node', process.execPath)
        .replaceAll('/opt/plant-store', resolve('.'))
        .replaceAll('/var/lib/plant-store', state);
    const commands = blocks('systemd', 'console').join('');
    const { stdout } = spawnSync('sh', ['-euc', here(commands.replaceAll(/^# /gm, ''))], {
      cwd: folder,
      env: { PATH: `${join(folder, 'bin')}:${process.env.PATH}` },
      encoding: 'utf8',
    });
    const both = 'plant-store.socket plant-store.service';
    t.strictSame(
      stdout.match(/(?<=systemctl ).*/g),
      ['enable --now', 'stop', 'start'].map((verb) => `${verb} ${both}`),
    );

    const settings = settingsIn(here(UNIT));
    const env = { ...settings, PLANT_STORE_MONITOR_PORT: '0', NODE_V8_COVERAGE: '' };
    const command = here(directives(UNIT).get('ExecStart') ?? '').split(' ');
    const program = await serving(launch(t, { cwd: folder, env, under: AS_USER, command }), TOKEN);
    t.equal(program.plants, 1);
  },
);

t.test('the program accepts the settings in the files that extend its unit', async (t) => {
  const contents = { ...selfSigned(), password: 'a-secret', tokens: TOKEN };
  const settings = [];
  for (const extension of EXTENSIONS) {
    const names = [...extension.matchAll(/^LoadCredential=(\w+):/gm)].map(([, name = '']) => name);
    const given = Object.entries(contents).filter(([name]) => names.includes(name));
    const folder = t.testdir(Object.fromEntries(given));
    settings.push(await readServerSettings(settingsIn(extension.replaceAll('%d', folder))));
  }
  const [tls, postgres] = settings;
  t.equal(String(tls?.tls?.cert), contents.cert);
  t.match(postgres?.tokenSource, { kind: 'file', tokens: exactly(TOKEN) });
  t.equal(await postgres?.PLANT_STORE_DATABASE_PASSWORD_FILE?.(), 'a-secret');
});

t.test('the program starts with the commands of the document for PostgreSQL', async (t) => {
  const commands = block('The program', 'sh')
    .replace('@db1,db2/', '@127.0.0.1:1,127.0.0.1:2/')
    .replace('npx plant-store', `exec '${process.execPath}' '${SERVER}'`);
  const cwd = t.testdir({ tokens: TOKEN, password: 'a-secret' });
  const program = launch(t, { cwd, command: ['sh', '-euc', commands] });
  await program.says('stderr', /ECONNREFUSED 127.0.0.1:2; trying again/);
  program.send('SIGTERM');
  t.strictSame(await program.ended, DONE);
});

/** The volume of a pod with the claim or the Secret of this name. */
const claimed = (name: string, claimName: unknown) => ({
  name,
  persistentVolumeClaim: { claimName },
});
const secret = (name: string, secretName: unknown) => ({ name, secret: { secretName } });

t.test('the manifests refer to names that exist, and to settings of the program', async (t) => {
  t.strictSame([...LOG.keys()], ['Secret', 'PersistentVolumeClaim', 'Service', 'Deployment']);
  t.strictSame([...POSTGRES.keys()], ['Secret', 'Job', 'Service', 'Deployment']);
  const claimName = at(LOG.get('PersistentVolumeClaim'), '/metadata/name');
  for (const manifests of [LOG, POSTGRES]) {
    const [service, deployment] = ['Service', 'Deployment'].map((kind) => manifests.get(kind));
    const labels = at(deployment, '/spec/template/metadata/labels') as { app: string };
    t.strictSame(at(service, '/spec/selector'), labels);
    t.strictSame(at(deployment, '/spec/selector/matchLabels'), labels);
    t.match(TARGETS, `regex: ${labels.app};monitor\n`);

    const secretName = at(manifests.get('Secret'), '/metadata/name');
    const files = Object.keys(at(manifests.get('Secret'), '/stringData') as object);
    for (const kind of ['Deployment', 'Job']) {
      const manifest = manifests.get(kind);
      if (manifest === undefined) continue;
      const container = containerOf(manifest);
      const mounts = Object.fromEntries(
        container.volumeMounts.map(({ name, mountPath }) => [name, mountPath]),
      );
      t.strictSame(at(manifest, `${POD}/volumes`), [
        ...('data' in mounts ? [claimed('data', claimName)] : []),
        secret('secrets', secretName),
      ]);
      const env = envOf(container);
      for (const [name, value] of Object.entries(env)) {
        t.ok(name in SETTINGS, name);
        if (name.endsWith('_FILE'))
          t.ok(files.map((file) => `${mounts.secrets}/${file}`).includes(value), value);
      }
      if ('data' in mounts)
        t.match(block('A container', 'dockerfile'), `\nVOLUME ${mounts.data}\n`);
    }

    const { ports, env } = containerOf(deployment);
    t.match(at(service, '/spec/ports'), { length: 1, 0: { targetPort: 'http' } });
    t.strictSame(
      ports.map(({ name, containerPort }) => [name, String(containerPort)]),
      [
        ['http', SETTINGS.PLANT_STORE_PORT.fallback],
        ['monitor', env.find(({ name }) => name === 'PLANT_STORE_MONITOR_PORT')?.value],
      ],
    );
  }
});

t.test('the Job imports the log of the other manifest before two pods serve', async (t) => {
  const job = POSTGRES.get('Job');
  const container = containerOf(job);
  const [node, script = '', ...args] = container.command ?? [];
  t.strictSame([node, dirname(script), args[0]], ['node', '/app/dist', 'import']);
  const folder = t.testdir({ tokens: TOKEN, password: 'a-secret', 'plants.jsonl': '{}\n' });
  t.equal(args[1], `/data/${basename(SETTINGS.PLANT_STORE_FILE.fallback)}`);
  const here = (manifest: unknown) => {
    const secrets = containerOf(manifest).volumeMounts.find(({ name }) => name === 'secrets');
    const env = JSON.stringify(envOf(containerOf(manifest)));
    return JSON.parse(
      env
        .replaceAll(String(secrets?.mountPath), folder)
        .replace('@db1,db2/', '@127.0.0.1:1,127.0.0.1:2/'),
    ) as Record<string, string>;
  };
  const options = { cwd: folder, args: ['import', 'plants.jsonl'], env: here(job) };
  t.match(await runHere(t, options), { code: 1, stderr: /DATABASE_URL: .*ECONNREFUSED/ });

  const deployment = POSTGRES.get('Deployment');
  t.equal(at(deployment, '/spec/replicas'), 2);
  const { tokenSource } = await readServerSettings(here(deployment));
  t.match(tokenSource, { kind: 'file', tokens: exactly(TOKEN) });

  // What the command selects is the Job and what it needs.
  const [, key = '', value] = /--selector=(\w+)=(\S+)/.exec(IMPORT) ?? [];
  const selected = [...POSTGRES.values()].filter(
    (manifest) => (at(manifest, '/metadata') as { labels?: object }).labels !== undefined,
  );
  t.strictSame(selected, [POSTGRES.get('Secret'), job]);
  for (const manifest of selected) t.equal(at(manifest, `/metadata/labels/${key}`), value);
  t.match(IMPORT, `job/${String(at(job, '/metadata/name'))}\n`);
});

t.test('the pods have the time and the memory that the program may take', async (t) => {
  const GRACE_SECONDS = 30;
  const bytes = FIXED_MIB * 2 ** 20 + DEFAULT_LIMITS.maxBufferedBytes + 10e6 * 40;
  t.ok(bytes <= 2 ** 30, `${bytes} bytes, with the index of 10 million plants`);
  for (const container of DEPLOYMENTS.map(containerOf)) {
    t.ok(container.lifecycle.preStop.sleep.seconds + SHUTDOWN_MS / 1_000 < GRACE_SECONDS);
    t.match(container, { resources: { limits: { memory: '1Gi' }, requests: { memory: '1Gi' } } });
  }
});

t.test('the probes are pages of the monitor', async (t) => {
  const cwd = t.testdir({ tokens: TOKEN });
  const env = { PLANT_STORE_TOKEN_FILE: 'tokens', PLANT_STORE_MONITOR_PORT: '0' };
  const program = await startHere(t, { cwd, env: { ...ENV, ...env } });
  const [, port = ''] = await program.says('stdout', /^monitor: http:\/\/0\.0\.0\.0:(\d+)\n/m);
  const probes = DEPLOYMENTS.map(containerOf).flatMap(({ livenessProbe, readinessProbe }) => [
    livenessProbe,
    readinessProbe,
  ]);
  for (const { httpGet } of probes) {
    t.equal(httpGet.port, 'monitor');
    const { status } = await fetch(`http://127.0.0.1:${port}${httpGet.path}`);
    t.equal(status, 200, httpGet.path);
  }
});

const missing = ['docker', 'kubectl'].filter((name) => spawnSync(name, ['--help']).status !== 0);
const noClients = missing.length > 0 && `needs ${missing.join(' and ')}`;

t.test(
  'Docker and Kubernetes accept the options of all commands',
  { skip: noClients },
  async (t) => {
    const clusters = [{ name: 'none', cluster: { server: 'http://127.0.0.1:1' } }];
    const contexts = [{ name: 'none', context: { cluster: 'none' } }];
    const cwd = t.testdir({
      Dockerfile: block('A container', 'dockerfile'),
      'kubernetes-postgres.yml': t.fixture('symlink', resolve('.github/kubernetes-postgres.yml')),
      config: JSON.stringify({ clusters, contexts, 'current-context': 'none' }),
    });
    const commands = ['A container', 'Kubernetes']
      .flatMap((heading) => blocks(heading, 'sh'))
      .filter((block) => /^(?:docker|kubectl) /.test(block))
      .join('');
    const env = { ...process.env, DOCKER_HOST: 'unix:///none', KUBECONFIG: 'config' };
    const { stderr } = spawnSync('sh', ['-uc', commands], { cwd, env, encoding: 'utf8' });
    t.strictSame(stderr.match(/^.*unknown.*$/gm) ?? [], []);
    // Each gets as far as connecting to a server. kubectl also logs its attempts, each with a code.
    const tried = /^(?!E\d).*(?:Cannot connect to the Docker|:1 was refused|refused;).*$/gm;
    t.equal(stderr.match(tried)?.length, commands.match(/^(?:docker|kubectl) /gm)?.length);
  },
);

/** The operations of JSON Patch that the documents use. */
interface Operation {
  readonly op: 'add' | 'remove';
  readonly path: string;
  readonly value?: unknown;
}

t.test('a pod with the documented patch waits, and a command in it repairs the log', async (t) => {
  const [, patch = ''] = /--patch='([^']*)'/.exec(REPAIR) ?? [];
  const patched = structuredClone(LOG.get('Deployment'));
  for (const { op, path, value } of JSON.parse(patch) as readonly Operation[]) {
    const parent = at(patched, dirname(path)) as Record<string, unknown>;
    const name = basename(path);
    t.equal(name in parent, op === 'remove', `${op} ${path}`);
    parent[name] = value;
  }
  const { livenessProbe, readinessProbe, command = [] } = containerOf(patched);
  t.strictSame([livenessProbe, readinessProbe], [undefined, undefined], 'nothing listens for them');
  const [waiting = '', ...forHowLong] = command;
  const child = spawn(waiting, forHowLong);
  await once(child, 'spawn');

  const ivy = encodeRecord({ id: 1n, name: 'ivy' });
  const cwd = t.testdir({ data: { 'plants.jsonl': `${ivy}x\n` } });
  const [, script = '', args = ''] = / -- node (\S+) (.*)\n/.exec(REPAIR) ?? [];
  t.ok(existsSync(script.replace('/app', '.')));
  const repaired = await runHere(t, { cwd, env: ENV, args: args.split(' ') });
  t.match(repaired, { code: 0, stdout: /kept 1 plant, moved 1 damaged line/ });
  t.equal(readFileSync(join(cwd, 'data/plants.jsonl'), 'utf8'), ivy);

  t.equal(child.exitCode, null, 'the pod still waits');
  child.kill('SIGKILL');
  await once(child, 'exit');
});
