import { execFile, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';

import t, { type Test } from 'tap';
import { parseAllDocuments } from 'yaml';

import { DEFAULT_LIMITS } from '../dist/http/memory.js';
import { readServerSettings } from '../dist/program/environment.js';
import { EXIT, STOPPING } from '../dist/program/exit.js';
import { SETTINGS } from '../dist/program/settings.js';
import { TOKEN } from './client.js';
import { FIXED_MIB } from './hostile/memory.js';
import { noPromtool } from './metrics.js';
import { block, blocks, read } from './readme.js';
import { freePort } from './service.js';
import { launch, run, serving, start } from './system/program.js';

const [SERVICE = '', TARGETS = ''] = blocks('Kubernetes', 'yaml');
const [RELOAD = '', REPAIR = ''] = blocks('Kubernetes', 'sh');

/** What the tests read of manifests. */
interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly stringData: Readonly<Record<string, string>>;
  readonly spec: {
    readonly selector: { readonly matchLabels: Labels };
    readonly ports: readonly { readonly targetPort: string }[];
    readonly template: { readonly metadata: { readonly labels: Labels }; readonly spec: Pod };
  };
}

type Labels = Readonly<Record<string, string>>;

interface Pod {
  readonly containers: readonly [Container];
  readonly volumes: readonly {
    readonly name: string;
    readonly persistentVolumeClaim?: { readonly claimName: string };
    readonly secret?: { readonly secretName: string };
  }[];
}

interface Container {
  readonly image: string;
  readonly command: readonly string[];
  readonly env: readonly { readonly name: string; readonly value: string }[];
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
  readonly resources: Readonly<Record<'limits' | 'requests', { readonly memory: string }>>;
  readonly lifecycle: { readonly preStop: { readonly sleep: { readonly seconds: number } } };
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
}

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
}

const MANIFESTS = new Map(
  parseAllDocuments(SERVICE)
    .map((document) => document.toJS() as Manifest)
    .map((each) => [each.kind, each]),
);

function manifest(kind: string): Manifest {
  const found = MANIFESTS.get(kind);
  if (!found) throw new Error(`there is no ${kind}`);
  return found;
}

const podOf = (kind: string): Pod => manifest(kind).spec.template.spec;

const environmentOf = ({ env }: Container): Record<string, string> =>
  Object.fromEntries(env.map(({ name, value }) => [name, value]));

const noSystemd =
  spawnSync('systemd-analyze', ['--version']).status !== 0 && 'needs systemd-analyze';

/** Writes the files for systemd to a folder. Returns the paths of the service and of the socket. */
function writeUnits(t: Test): readonly string[] {
  const folder = t.testdir();
  const paths = blocks('systemd', 'ini').map((unit) => {
    const path = join(folder, /^# \/etc\/systemd\/system\/(\S+)/.exec(unit)?.[1] ?? '');
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, unit.replace('/usr/bin/node', process.execPath));
    return path;
  });
  return paths.filter((path) => !path.endsWith('.conf'));
}

/** The last value of each directive of a unit. */
function directives(unit: string): ReadonlyMap<string, string> {
  return new Map(
    [...unit.matchAll(/^(\w+)=(.*)$/gm)].map(([, key = '', value = '']) => [key, value]),
  );
}

/** The settings in a unit. */
const settingsIn = (unit: string): Record<string, string> =>
  Object.fromEntries(
    [...unit.matchAll(/(PLANT_STORE_\w+)=(\S+)/g)].map(([, name = '', value = '']) => [
      name,
      value,
    ]),
  );

t.test('systemd accepts the units', { skip: noSystemd }, async (t) => {
  const { status, stderr } = spawnSync('systemd-analyze', ['verify', ...writeUnits(t)], {
    encoding: 'utf8',
  });
  t.equal(status, 0, stderr);
  t.notMatch(stderr, 'plant-store');
});

t.test(
  'systemd rates the exposure of the service at 2.0 or less',
  { skip: noSystemd },
  async (t) => {
    const [service = ''] = writeUnits(t);
    const args = ['security', '--offline=yes', '--threshold=20', '--no-pager', service];
    const { status, stdout, stderr } = spawnSync('systemd-analyze', args, { encoding: 'utf8' });
    t.equal(status, 0, /→.*/.exec(stdout)?.[0] ?? stderr);
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

t.test('the systemd unit starts, reloads and stops the program', async (t) => {
  const unit = directives(blocks('systemd', 'ini')[0] ?? '');
  t.match(unit.get('ExecStart'), /node \S+\/dist\/server\.js$/);
  t.equal(unit.get('RestartPreventExitStatus'), `${EXIT.usage} ${EXIT.modified}`);

  const cwd = t.testdir();
  const settings = settingsIn(blocks('systemd', 'ini')[0] ?? '');
  const path = settings.PLANT_STORE_FILE ?? '';
  t.match(block('Prometheus', 'yaml'), `127.0.0.1:${settings.PLANT_STORE_MONITOR_PORT}'`);
  const env = { ...settings, PLANT_STORE_FILE: `${cwd}/${path}`, PLANT_STORE_MONITOR_PORT: '0' };
  const program = await start(t, { cwd, env });
  t.match(program.log, new RegExp(`${path}$`));
  t.match(read('.github/DEPLOYING.md'), `the token is in \`${join(dirname(path), 'token')}\``);
  t.ok(existsSync(join(dirname(program.log), 'token')));
  const reload = ['-euc', unit.get('ExecReload') ?? ''];
  await promisify(execFile)('sh', reload, { env: { MAINPID: String(program.pid) } });
  await program.says('stderr', /accepts 1 token\n/);
  t.strictSame(await program.stop('SIGTERM'), { code: 0, signal: null });
});

t.test('the program for PostgreSQL accepts the settings in its file for systemd', async (t) => {
  const [, , unit = ''] = blocks('systemd', 'ini');
  const credentials = [...unit.matchAll(/^LoadCredential=(\w+):/gm)].map(([, name = '']) => name);
  const folder = t.testdir(Object.fromEntries(credentials.map((name) => [name, 'a-secret'])));
  const settings = await readServerSettings(settingsIn(unit.replaceAll('%d', folder)));
  t.strictSame(settings.tokens, ['a-secret']);
  t.equal(await settings.PLANT_STORE_DATABASE_PASSWORD_FILE?.(), 'a-secret');
});

t.test('the manifests refer to names that exist, and to settings of the program', async (t) => {
  const kinds = ['Secret', 'PersistentVolumeClaim', 'Service', 'Deployment'];
  t.strictSame([...MANIFESTS.keys()], kinds);
  const { name: claim } = manifest('PersistentVolumeClaim').metadata;
  const secret = manifest('Secret');
  const service = manifest('Service').spec;
  const { labels } = manifest('Deployment').spec.template.metadata;
  t.strictSame(service.selector, labels);
  t.strictSame(manifest('Deployment').spec.selector.matchLabels, labels);

  const server = podOf('Deployment');
  const [container] = server.containers;
  const { volumes } = server;
  t.strictSame(
    container.volumeMounts.map(({ name }) => name),
    volumes.map(({ name }) => name),
  );
  const [volume] = /^VOLUME (.*)$/m.exec(block('A container', 'dockerfile'))?.slice(1) ?? [];
  t.equal(container.volumeMounts[0]?.mountPath, volume);
  t.equal(volumes[0]?.persistentVolumeClaim?.claimName, claim);
  const [, tokens] = volumes;
  t.equal(tokens?.secret?.secretName, secret.metadata.name);
  const env = environmentOf(container);
  const path = `${container.volumeMounts[1]?.mountPath}/${Object.keys(secret.stringData)[0]}`;
  t.equal(env.PLANT_STORE_TOKEN_FILE, path);
  for (const name of Object.keys(env)) t.ok(name in SETTINGS, name);

  const GRACE_SECONDS = 30;
  const { seconds } = container.lifecycle.preStop.sleep;
  t.ok(seconds + STOPPING.totalMs / 1_000 < GRACE_SECONDS);
  const ports = new Map(container.ports.map(({ name, containerPort }) => [name, containerPort]));
  t.strictSame(
    service.ports.map(({ targetPort }) => targetPort),
    ['http'],
  );
  t.equal(String(ports.get('http')), SETTINGS.PLANT_STORE_PORT.fallback);
  t.equal(String(ports.get('monitor')), env.PLANT_STORE_MONITOR_PORT);
  t.match(TARGETS, `regex: ${labels.app};monitor\n`);
});

t.test(
  'the limit of memory is what SECURITY.md names, and the index of 10 million plants',
  async (t) => {
    const [{ resources }] = podOf('Deployment').containers;
    t.equal(resources.limits.memory, '1Gi');
    t.equal(resources.requests.memory, '1Gi');
    const bytes = FIXED_MIB * 2 ** 20 + DEFAULT_LIMITS.maxBufferedBytes + 10e6 * 40;
    t.ok(bytes <= 2 ** 30, `${bytes} bytes`);
  },
);

t.test('the probes are pages of the monitor, and the shell sends SIGHUP', async (t) => {
  const [container] = podOf('Deployment').containers;
  const cwd = t.testdir({ tokens: TOKEN });
  const env = { PLANT_STORE_TOKEN_FILE: 'tokens', PLANT_STORE_MONITOR_PORT: '0' };
  const program = await start(t, { cwd, env: { ...environmentOf(container), ...env } });
  const [, port = ''] = await program.says('stdout', /^monitor: http:\/\/0\.0\.0\.0:(\d+)\n/m);
  for (const { httpGet } of [container.livenessProbe, container.readinessProbe]) {
    t.equal(httpGet.port, 'monitor');
    const { status } = await fetch(`http://127.0.0.1:${port}${httpGet.path}`);
    t.equal(status, 200, httpGet.path);
  }

  const [, command = ''] = /-- sh -c '(.* )1'\n$/.exec(RELOAD) ?? [];
  // No program can be found.
  const noPrograms = { env: { PATH: '' } };
  await promisify(execFile)('/bin/sh', ['-c', `${command}${program.pid}`], noPrograms);
  await program.says('stderr', /accepts 1 token\n/);
});

/** The operations of JSON Patch that the documents use. */
interface Operation {
  readonly op: 'add' | 'remove';
  readonly path: string;
  readonly value?: unknown;
}

t.test('a pod with the documented patch repairs the log', async (t) => {
  const [, patch = ''] = /--patch='([^']*)'/.exec(REPAIR) ?? [];
  const patched = structuredClone(manifest('Deployment'));
  for (const { op, path, value } of JSON.parse(patch) as readonly Operation[]) {
    const names = path.split('/').slice(1);
    const last = names.pop() ?? '';
    const parent = names.reduce(
      (at, name) => at[name] as Record<string, unknown>,
      patched as object as Record<string, unknown>,
    );
    t.equal(last in parent, op === 'remove', `${op} ${path}`);
    if (op === 'remove') Reflect.deleteProperty(parent, last);
    else parent[last] = value;
  }
  const [container] = patched.spec.template.spec.containers as readonly [
    Container & { readonly command: readonly string[] },
  ];
  t.notOk('livenessProbe' in container, 'nothing listens for it');

  const cwd = t.testdir({ data: { 'plants.jsonl': '{"id":1,"name":"ivy"}\nx\n' } });
  const [node, script = '', ...args] = container.command;
  t.equal(node, 'node');
  const env = environmentOf(container);
  const repair = { cwd, env, script: script.replace('/app', process.cwd()), args };
  t.match(await run(t, repair), { code: 0, stdout: /kept 1 plant, moved 1 damaged line/ });
  const started = await start(t, { cwd });
  t.equal(started.plants, 1);
});

t.test('Prometheus accepts the rules that select pods', { skip: noPromtool }, async (t) => {
  // Debian builds Prometheus without kubernetes_sd_configs.
  const discovery = /kubernetes_sd_configs:\n *- role: pod\n/;
  t.match(TARGETS, discovery);
  const targets = TARGETS.replace(discovery, 'static_configs: []\n');
  const cwd = t.testdir({ 'prometheus.yml': targets });
  const promtool = promisify(execFile);
  const { stdout } = await promtool('promtool', ['check', 'config', 'prometheus.yml'], { cwd });
  t.match(stdout, 'prometheus.yml is valid');
});
