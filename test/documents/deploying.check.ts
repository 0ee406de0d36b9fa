import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';

import t, { type Test } from 'tap';
import { parse, parseAllDocuments } from 'yaml';

import { DEFAULT_LIMITS } from '../../dist/http/limits.js';
import { encodeRecord } from '../../dist/log/encode.js';
import { DEFAULTS } from '../../dist/postgres/store.js';
import { EXIT } from '../../dist/program/exit.js';
import { readServerSettings } from '../../dist/program/settings/rules.js';
import { SETTINGS } from '../../dist/program/settings/table.js';
import { SHUTDOWN_MS } from '../../dist/program/signals.js';
import { selfSigned } from '../helpers/certificate.js';
import { TOKEN } from '../helpers/client.js';
import { block, blocks, read, settingsIn } from '../helpers/documents.js';
import { exactly } from '../helpers/exactly.js';
import { missing } from '../helpers/needs.js';
import { FERN, IVY } from '../helpers/plants.js';
import { DONE, launch, launchHere, runHere, untilServing, startHere } from '../helpers/program.js';
import { freePort } from '../helpers/service.js';
import { FIXED_MIB } from '../hostile/memory.js';

const FOLDER = 'src/program/deploy';
const TARGETS = readFileSync(join(FOLDER, 'prometheus-kubernetes.yml'), 'utf8');
const README = read('src/program/deploy/README.md');
const [SECRET = ''] = blocks('Kubernetes', 'sh');
const [, WRITE_TOKEN = ''] = /Write a token to a file, as `(.*?)` does/.exec(README) ?? [];
const [, PASSWORD_OPTION = ''] = /With PostgreSQL, add\s+`(.*?)`/.exec(README) ?? [];
const RESTART = block('New secrets', 'sh');
const BACKUP = block('Backups', 'sh');
const IN_POD = blocks('Commands on a log', 'sh').join('');

/** A file of the folder for deployments. */
const fileOf = (name: string): string => readFileSync(join(FOLDER, name), 'utf8');

const UNIT = fileOf('plant-store.service');
const SOCKET = fileOf('plant-store.socket');
const EXTENSIONS = ['tls', 'postgres'].map((name) => fileOf(`plant-store.service.d/${name}.conf`));

/** The manifests in a file, by their kinds. */
function manifestsIn(file: string): ReadonlyMap<string, unknown> {
  const documents = parseAllDocuments(fileOf(file));
  const manifests = documents.map((document) => document.toJS() as { readonly kind: string });
  return new Map(manifests.map((manifest) => [manifest.kind, manifest]));
}

const LOG = manifestsIn('kubernetes-log.yml');
const POSTGRES = manifestsIn('kubernetes-postgres.yml');
const INGRESS = manifestsIn('kubernetes-ingress.yml');
const JOB = manifestsIn('kubernetes-import.yml').get('Job');

/** The commands in the comments of a manifest. */
const commandsIn = (file: string): string =>
  Array.from(fileOf(file).matchAll(/^# {3}(.*\n)/gm), ([, line]) => line).join('');

const COMMANDS_OF_IMPORT = commandsIn('kubernetes-import.yml');
/** The first of them, which move the plants to PostgreSQL. */
const [IMPORT = ''] = /^[^]*?-postgres\.yml [^]*?\n(?=kubectl)/.exec(COMMANDS_OF_IMPORT) ?? [];
/** Those that move the plants back to a log: commands that are joined, up to each redirection. */
const [EXPORT = ''] = /^kubectl scale .*=0 &&\n(?: .*\n)*/m.exec(COMMANDS_OF_IMPORT) ?? [];
const [BACK = ''] = /^sed .*&&\n(?: .*\n)*/m.exec(COMMANDS_OF_IMPORT) ?? [];
/** Those that restore a database: with no pod, and from an export. */
const RESTORE = commandsIn('kubernetes-postgres.yml').match(/^kubectl .*&&\n(?: .*\n)*/gm) ?? [];

/** The only container of a Deployment or a Job, as far as the tests read it. */
interface Container {
  readonly lifecycle?: { readonly preStop: { readonly sleep: { readonly seconds: number } } };
  readonly command?: readonly string[];
  readonly env: readonly { readonly name: string; readonly value: string }[];
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
}

/** The value at a path of a manifest, such as `/spec/containers/0`. */
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
const ENV = envOf(containerOf(LOG.get('Deployment')));
const CONTAINERS = [LOG, POSTGRES].map((manifests) => containerOf(manifests.get('Deployment')));

/** The contents of the files from which the document creates the Secret. */
const SECRETS: Readonly<Record<string, string>> = {
  tokens: 'a-secret-token',
  password: 'a-secret-password',
};

/** The settings of a Deployment or a Job, with its Secret in a folder of the test. */
function settingsOf(t: Test, manifest: unknown) {
  const container = containerOf(manifest);
  const { mountPath = '' } = container.volumeMounts.find(({ name }) => name === 'secrets') ?? {};
  const isPostgres = 'PLANT_STORE_DATABASE_URL' in envOf(container);
  const command = isPostgres ? `${SECRET} ${PASSWORD_OPTION}` : SECRET;
  const files = [...command.matchAll(/--from-file=(\w+)/g)].map(([, name = '']) => name);
  const folder = t.testdir(Object.fromEntries(files.map((name) => [name, SECRETS[name] ?? ''])));
  const settings = Object.entries(envOf(container)).map(([name, value]) => [
    name,
    value.replace(mountPath, folder).replace('@db1,db2/', '@127.0.0.1:1,127.0.0.1:2/'),
  ]);
  return { folder, settings: Object.fromEntries(settings) as Record<string, string> };
}

const noSystemd = missing('systemd-analyze');

/** The last value of each directive of a unit. */
function directives(unit: string): ReadonlyMap<string, string> {
  return new Map(
    [...unit.matchAll(/^(\w+)=(.*)$/gm)].map(([, key = '', value = '']) => [key, value]),
  );
}

t.test('systemd accepts the units, and rates them as safe', { skip: noSystemd }, async (t) => {
  const folder = t.testdir({ 'plant-store.service.d': {} });
  const names = ['plant-store.service', 'plant-store.socket'];
  const extensions = ['tls', 'postgres'].map((name) => `plant-store.service.d/${name}.conf`);
  for (const name of [...names, ...extensions])
    writeFileSync(join(folder, name), fileOf(name).replace('/usr/bin/node', process.execPath));
  const analyze = (...args: readonly string[]) =>
    spawnSync('systemd-analyze', args, { cwd: folder, encoding: 'utf8' });
  const paths = names.map((name) => join(folder, name));
  const verified = analyze('verify', ...paths);
  t.equal(verified.status, 0, verified.stderr);
  t.notMatch(verified.stderr, 'plant-store');
  // Accepts an exposure of at most 2.0 of 10.
  const [service = ''] = paths;
  const rated = analyze('security', '--offline=yes', '--threshold=20', '--no-pager', service);
  t.equal(rated.status, 0, /→.*/.exec(rated.stdout)?.[0] ?? rated.stderr);
});

t.test('the documented extension of the socket replaces its address', { skip: noSystemd }, (t) => {
  const [, extension = ''] = /^# {3}(\[Socket\]\n(?:# {3}.*\n)+)/m.exec(SOCKET) ?? [];
  const lines = extension.replaceAll(/^# {3}/gm, '');
  const addresses = Array.from(
    `${SOCKET.replaceAll(/^#.*/gm, '')}${lines}`.matchAll(/^ListenStream=(.*)$/gm),
    ([, address = '']) => address,
  );
  // An empty value removes the addresses before it.
  t.match(addresses, exactly('127.0.0.1:8080', /^$/, /^[\d.]+:\d+$/));
  const folder = t.testdir({
    'plant-store.service': UNIT.replace('/usr/bin/node', process.execPath),
    'plant-store.socket': SOCKET,
    'plant-store.socket.d': { 'override.conf': lines },
  });
  const args = ['verify', join(folder, 'plant-store.socket')];
  const { status, stderr } = spawnSync('systemd-analyze', args, { encoding: 'utf8' });
  t.equal(status, 0, stderr);
  t.notMatch(stderr, 'override.conf');
  t.end();
});

t.test('systemd-socket-activate starts the program', { skip: noSystemd }, async (t) => {
  const cwd = t.testdir({ dist: t.fixture('symlink', resolve('dist')) });
  const port = await freePort();
  const file = 'elsewhere.jsonl';
  const options = [`--listen=127.0.0.1:${port}`, `--setenv=PLANT_STORE_FILE=${file}`];
  const command = ['systemd-socket-activate', ...options, process.execPath, 'dist/server.js'];
  const program = launch(t, { cwd, command });
  await program.says('stderr', /^Listening on /);
  t.equal((await fetch(`http://127.0.0.1:${port}/plants`)).status, 401);
  const { url, log } = await untilServing(program);
  t.match(url, `http://127.0.0.1:${port}`);
  t.equal(log, join(cwd, file), 'settings reach it');
});

/** The user of the service, which is not root even if root runs this test. */
const USER = 65_534;
const isRoot = process.getuid?.() === 0;
const AS_USER = isRoot ? ['setpriv', `--reuid=${USER}`, `--regid=${USER}`, '--clear-groups'] : [];
const noUser =
  spawnSync('env', [...AS_USER, 'test', '-r', 'dist/server.js']).status !== 0 &&
  'needs a folder that others may read';

t.test(
  'with the units, root installs, fills, starts, reloads and stops the service',
  { skip: noUser },
  async (t) => {
    const print = '#!/bin/sh\necho "${0##*/} $*"\n';
    const folder = t.testdir({
      bin: { npm: print, systemctl: print },
      state: {},
      units: {},
      'plants.backup.jsonl': encodeRecord(IVY),
    });
    const state = join(folder, 'state');
    const units = join(folder, 'units');
    for (const name of ['npm', 'systemctl']) chmodSync(join(folder, 'bin', name), 0o755);
    if (isRoot) chownSync(state, USER, USER);
    const here = (text: string): string =>
      text
        .replaceAll('/usr/bin/node', process.execPath)
        .replaceAll('/opt/plant-store', resolve('.'))
        .replaceAll('/etc/systemd/system', units)
        .replaceAll('/var/lib/plant-store', state);
    const printed = blocks('systemd', 'console').map((commands) => {
      const { stdout } = spawnSync('sh', ['-euc', here(commands.replaceAll(/^# /gm, ''))], {
        cwd: folder,
        env: { PATH: `${join(folder, 'bin')}:${process.env.PATH}` },
        encoding: 'utf8',
      });
      return stdout.match(/(?<=^systemctl ).*/gm);
    });
    const both = 'plant-store.socket plant-store.service';
    t.strictSame(printed, [
      ['daemon-reload', `enable --now ${both}`],
      [`stop ${both}`, `start ${both}`],
    ]);
    t.strictSame(readdirSync(units).toSorted(), both.split(' ').toSorted());

    const unit = directives(UNIT);
    const settings = settingsIn(here(UNIT));
    t.match(block('Prometheus', 'yaml'), `127.0.0.1:${settings.PLANT_STORE_MONITOR_PORT}'`);
    const env = { ...settings, PLANT_STORE_MONITOR_PORT: '0', NODE_V8_COVERAGE: '' };
    const command = here(unit.get('ExecStart') ?? '').split(' ');
    const program = await untilServing(
      launch(t, { cwd: folder, env, under: AS_USER, command }),
      TOKEN,
    );
    t.equal(program.plants, 1);
    t.ok(existsSync(join(state, 'token')));

    const [, reloadPod = ''] = /-- sh -c '(.* )1'\n/.exec(fileOf('kubernetes-log.yml')) ?? [];
    const reloads = [unit.get('ExecReload') ?? '', `${reloadPod}${program.pid}`];
    for (const [n, reload] of reloads.entries()) {
      // Without a PATH, because a slim image has no other programs.
      spawnSync('/bin/sh', ['-euc', reload], { env: { PATH: '', MAINPID: String(program.pid) } });
      await program.says('stderr', new RegExp(`(?:accepts 1 token\\n[^]*){${n + 1}}`));
    }
    t.strictSame(await program.stop('SIGTERM'), DONE);
  },
);

t.test('an upgrade prints the commit to go back to', { skip: missing('git') }, (t) => {
  const print = '#!/bin/sh\necho "${0##*/} $*"\n';
  const cwd = t.testdir({ bin: { npm: print, systemctl: print } });
  for (const name of ['npm', 'systemctl']) chmodSync(join(cwd, 'bin', name), 0o755);
  const env = {
    ...process.env,
    PATH: `${join(cwd, 'bin')}:${process.env.PATH}`,
    GIT_CONFIG_GLOBAL: '/dev/null',
  };
  /** Runs commands. Returns the lines that they print. */
  function run(commands: string): string[] {
    const { status, stdout, stderr } = spawnSync('sh', ['-euc', commands], {
      cwd,
      env,
      encoding: 'utf8',
    });
    t.equal(status, 0, stderr);
    return stdout.trim().split('\n');
  }
  const commit =
    'git -c user.name=a -c user.email=b -C origin commit --quiet --allow-empty --message=version';
  run(`git init --quiet --initial-branch=main origin; ${commit}; git clone --quiet origin clone`);
  const printed = block('Upgrading', 'console').replaceAll(/^# /gm, '');
  const upgrade = printed.replace('/opt/plant-store', join(cwd, 'clone'));
  const head = () => run('git -C clone rev-parse HEAD')[0];

  const before = head();
  run(commit);
  const [first = '', ...others] = run(upgrade);
  t.equal(first, before);
  t.strictSame(others.slice(-3), [
    'npm ci --include=dev',
    'npm run build',
    'systemctl restart plant-store.service',
  ]);
  const newest = head();
  t.not(newest, before);
  run(upgrade.replace('git pull', `git checkout ${first}`));
  t.equal(head(), before);
  run(`cd clone && git checkout --quiet main; ${upgrade}`);
  t.equal(head(), newest);

  writeFileSync(join(cwd, 'bin/npm'), '#!/bin/sh\nexit 1\n');
  const { stdout } = spawnSync('sh', ['-uc', upgrade], { cwd, env, encoding: 'utf8' });
  t.notMatch(stdout, 'systemctl', 'the service goes on after a build that has failed');
  t.end();
});

/**
 * The values of `Restart=` with which an unclean exit code causes a restart (systemd.service(5)).
 */
const RESTARTS_FAILURES = ['always', 'on-failure'];

t.test('systemd starts the program again after each failure but wrong settings', async (t) => {
  const unit = directives(UNIT);
  const prevented = unit.get('RestartPreventExitStatus')?.split(' ').map(Number) ?? [];
  t.ok(RESTARTS_FAILURES.includes(unit.get('Restart') ?? ''));
  t.strictSame(prevented, [EXIT.usage]);
  // systemd takes an end by SIGHUP for a clean exit, after which `on-failure` does not restart.
  t.equal(unit.get('RestartForceExitStatus'), 'SIGHUP');
  // By default, systemd gives up after five starts in ten seconds.
  t.ok(5 * Number(unit.get('RestartSec')) > 10);
});

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

t.test('the program starts with the documented settings for PostgreSQL', async (t) => {
  const commands = block('The program', 'sh').replace('@db1,db2/', '@127.0.0.1:1,127.0.0.1:2/');
  const cwd = t.testdir({ tokens: TOKEN, password: 'a-secret' });
  const program = launchHere(t, { cwd, env: settingsIn(commands) });
  await program.says('stderr', /ECONNREFUSED 127.0.0.1:2; trying again/);
  program.send('SIGTERM');
  t.strictSame(await program.ended, DONE);
});

t.test('the manifests refer to names that exist, and to settings of the program', async (t) => {
  const [, volume] = /\nVOLUME (.*)\n/.exec(fileOf('Dockerfile')) ?? [];
  const [, secret] = /create secret generic (\S+)/.exec(SECRET) ?? [];
  for (const manifests of [LOG, POSTGRES]) {
    const [service, deployment] = ['Service', 'Deployment'].map((kind) => manifests.get(kind));
    const labels = at(deployment, '/spec/template/metadata/labels') as { app: string };
    t.strictSame(at(service, '/spec/selector'), labels);
    t.strictSame(at(deployment, '/spec/selector/matchLabels'), labels);
    t.strictSame(at(INGRESS.get('NetworkPolicy'), '/spec/podSelector/matchLabels'), labels);
    t.match(TARGETS, `regex: ${labels.app};monitor\n`);
    const backend = at(INGRESS.get('Ingress'), '/spec/rules/0/http/paths/0/backend/service');
    t.strictSame(backend, { name: at(service, '/metadata/name'), port: { name: 'http' } });

    const { settings } = settingsOf(t, deployment);
    const read = await readServerSettings(settings);
    t.match(read.tokenSource, { kind: 'file', tokens: exactly('a-secret-token') });
    t.match(at(service, '/spec/ports'), exactly({ name: 'http', targetPort: 'http' }));
    t.strictSame(at(deployment, `${POD}/containers/0/ports`), [
      { name: 'http', containerPort: Number(SETTINGS.PLANT_STORE_PORT.fallback) },
      { name: 'monitor', containerPort: Number(settings.PLANT_STORE_MONITOR_PORT) },
    ]);
  }
  const pushed = commandsIn('Dockerfile').match(/(?<=\bpush |--tag )\S+\/\S+/g);
  const images = [LOG.get('Deployment'), POSTGRES.get('Deployment'), JOB].map((manifest) =>
    at(manifest, `${POD}/containers/0/image`),
  );
  t.strictSame([...new Set(images)], [...new Set(pushed)]);
  const claim = at(LOG.get('PersistentVolumeClaim'), '/metadata/name');
  t.match(fileOf('plant-store.rules.yml'), `{persistentvolumeclaim="${String(claim)}"}`);
  const text = JSON.stringify([...LOG.values(), ...POSTGRES.values(), JOB]);
  for (const [, name] of text.matchAll(/"claimName":"(.*?)"/g)) t.equal(name, claim);
  for (const [, name] of text.matchAll(/"secretName":"(.*?)"/g)) t.equal(name, secret);
  for (const [, path] of text.matchAll(/"data","mountPath":"(.*?)"/g)) t.equal(path, volume);
});

t.test('a claim can be created from a snapshot', async (t) => {
  const enabled = fileOf('kubernetes-log.yml').replace(/^( *)# (dataSource: .*)$/m, '$1$2');
  const [claim] = parseAllDocuments(enabled).map((document) => document.toJS() as unknown);
  t.match(at(claim, '/spec/dataSource'), {
    apiGroup: 'snapshot.storage.k8s.io',
    kind: 'VolumeSnapshot',
    name: String,
  });
});

t.test('the documented command writes a token that a pod accepts', async (t) => {
  const { folder, settings } = settingsOf(t, LOG.get('Deployment'));
  spawnSync('sh', ['-euc', WRITE_TOKEN], { cwd: folder });
  const { tokenSource } = await readServerSettings(settings);
  t.match(tokenSource, { kind: 'file', tokens: exactly(/^[0-9a-f]{64}$/) });
});

t.test(
  'the files of the Secret do not get into the image, nor into a stage of its build',
  async (t) => {
    const files = [...`${SECRET} ${PASSWORD_OPTION}`.matchAll(/--from-file=(\w+)/g)];
    const ignored = new Set(fileOf('Dockerfile.dockerignore').split('\n'));
    t.strictSame(
      files.map(([, name = '']) => [name, ignored.has(`**/${name}`)]),
      Object.keys(SECRETS).map((name) => [name, true]),
    );
  },
);

t.test('the documented command creates the Secret of the Ingress', async (t) => {
  const [, name] = /create secret tls (\S+)/.exec(fileOf('kubernetes-ingress.yml')) ?? [];
  t.equal(name, at(INGRESS.get('Ingress'), '/spec/tls/0/secretName'));
});

t.test('the annotations that limit what clients send are strings', async (t) => {
  const enabled = fileOf('kubernetes-ingress.yml').replace(
    /# annotations:\n(?: *# {3}.*\n)+/,
    (comments) => comments.replaceAll('# ', ''),
  );
  const [ingress] = parseAllDocuments(enabled).map((document) => document.toJS() as unknown);
  const annotations = Object.values(at(ingress, '/metadata/annotations') as object);
  t.match(annotations, exactly(String, String));
});

t.test('the pods and the Job connect to the same database over TLS', async (t) => {
  const urls = [POSTGRES.get('Deployment'), JOB].map(
    (manifest) => envOf(containerOf(manifest)).PLANT_STORE_DATABASE_URL,
  );
  t.equal(new Set(urls).size, 1);
  for (const url of urls) t.match(url, /\?sslmode=verify-full$/);
});

t.test('a pod finds the certificate of a private authority in its Secret', async (t) => {
  const { folder, settings } = settingsOf(t, POSTGRES.get('Deployment'));
  const [, parameter = ''] =
    /add (&sslrootcert=\S+),/.exec(fileOf('kubernetes-postgres.yml')) ?? [];
  const [, mounted = '', name = ''] = /=(.*)\/(.*)/.exec(parameter) ?? [];
  t.equal(mounted, at(POSTGRES.get('Deployment'), `${POD}/containers/0/volumeMounts/0/mountPath`));
  writeFileSync(join(folder, name), selfSigned().cert);
  const url = `${settings.PLANT_STORE_DATABASE_URL}${parameter.replace(mounted, folder)}`;
  const env = { ...settings, PLANT_STORE_DATABASE_URL: url, PLANT_STORE_MONITOR_PORT: '0' };
  const program = launchHere(t, { cwd: folder, env });
  await program.says('stderr', /ECONNREFUSED 127.0.0.1:2; trying again/);
  program.send('SIGTERM');
  t.strictSame(await program.ended, DONE);
});

t.test('a pod can write to its volume, as a user that is not root', async (t) => {
  for (const manifest of [LOG.get('Deployment'), POSTGRES.get('Deployment'), JOB]) {
    const security = at(manifest, `${POD}/securityContext`) as Record<string, unknown>;
    t.match(security, { runAsNonRoot: true, runAsUser: Number, fsGroup: security.runAsUser });
  }
});

t.test('only a pod with a log is stopped before the next pod starts', async (t) => {
  const [log, postgres] = [LOG, POSTGRES].map((each) => each.get('Deployment'));
  t.match(log, { spec: { replicas: 1, strategy: { type: 'Recreate' } } });
  t.match(postgres, { spec: { replicas: 2, strategy: undefined } });
  // Until the next pod has the log, nothing could take the requests for which a preStop waits.
  t.equal(containerOf(log).lifecycle, undefined);
  t.match(containerOf(postgres), { lifecycle: { preStop: { sleep: { seconds: Number } } } });
  t.match(POSTGRES.get('PodDisruptionBudget'), {
    spec: {
      maxUnavailable: 1,
      unhealthyPodEvictionPolicy: 'AlwaysAllow',
      selector: at(postgres, '/spec/selector'),
    },
  });
});

t.test('the pods with PostgreSQL are on different nodes if possible', async (t) => {
  const deployment = POSTGRES.get('Deployment');
  t.match(
    at(deployment, `${POD}/topologySpreadConstraints`),
    exactly({
      topologyKey: 'kubernetes.io/hostname',
      whenUnsatisfiable: 'ScheduleAnyway',
      labelSelector: at(deployment, '/spec/selector'),
    }),
  );
});

t.test('a NetworkPolicy admits clients to the service and Prometheus to the monitor', async (t) => {
  const rules = at(INGRESS.get('NetworkPolicy'), '/spec/ingress') as { ports: unknown }[];
  t.strictSame(
    rules.map(({ ports }) => ports),
    ['http', 'monitor'].map((port) => [{ port }]),
  );
  t.match(rules, exactly(...rules.map(() => ({ from: exactly({ namespaceSelector: Object }) }))));
});

t.test('the Job imports the log of kubernetes-log.yml before the pods serve', async (t) => {
  const [node, script = '', command, log] = containerOf(JOB).command ?? [];
  t.strictSame([node, dirname(script), command], ['node', '/app/dist', 'import']);
  t.equal(log, `/data/${basename(SETTINGS.PLANT_STORE_FILE.fallback)}`);
  const { folder, settings } = settingsOf(t, JOB);
  writeFileSync(join(folder, 'plants.jsonl'), '{}\n');
  const options = { cwd: folder, args: ['import', 'plants.jsonl'], env: settings };
  t.match(await runHere(t, options), { code: 1, stderr: /DATABASE_URL: .*ECONNREFUSED/ });
  const name = String(at(JOB, '/metadata/name'));
  const deployment = String(at(LOG.get('Deployment'), '/metadata/name'));
  const claim = String(at(LOG.get('PersistentVolumeClaim'), '/metadata/name'));
  for (const [named, resource] of [
    [/(?<=\bjob[ /])\S+/g, name],
    [/(?<=\bdeploy(?:ment|)[ /])\S+/g, deployment],
    [/(?<=\bpersistentvolumeclaim )\S+/g, claim],
  ] as const)
    t.strictSame(new Set(COMMANDS_OF_IMPORT.match(named)), new Set([resource]));
  t.match(RESTART, `deployment ${deployment}`);
});

t.test('the commands of the Job end by themselves, and start pods after a success only', (t) => {
  // In each loop of the commands, `kubectl get` prints the next conditions of the Job.
  for (const [status, conditions] of [
    [0, ['', 'SuccessCriteriaMet', 'SuccessCriteriaMet Complete']],
    [0, ['Complete']],
    [1, ['', '', 'FailureTarget', 'FailureTarget Failed']],
    [1, ['Failed']],
  ] as const) {
    const kubectl = `#!/bin/sh
      echo "kubectl $*" >> called
      case $1 in
        get) sed -n "$(grep -c 'kubectl get' called)p" conditions ;;
        wait) exit ${status} ;;
      esac`;
    const cwd = t.testdir({
      bin: { kubectl, sleep: '#!/bin/sh\n' },
      conditions: `${conditions.join('\n')}\n`,
    });
    for (const name of ['kubectl', 'sleep']) chmodSync(join(cwd, 'bin', name), 0o755);
    const env = { PATH: `${join(cwd, 'bin')}:${process.env.PATH}` };
    const ran = spawnSync('sh', ['-uc', IMPORT], { cwd, env, encoding: 'utf8', timeout: 60_000 });
    t.equal(ran.status, status);
    t.match(ran.stdout, new RegExp(`^.*${status === 0 ? 'Complete' : 'Failed'}\\n$`));
    t.match(
      readFileSync(join(cwd, 'called'), 'utf8').trim().split('\n'),
      exactly(
        /^kubectl scale .*=0$/,
        /^kubectl apply .*import/,
        ...conditions.map(() => /^kubectl get job .*=\{\.status\.conditions\[\*\]\.type\}$/),
        /^kubectl logs/,
        /^kubectl wait --for=condition=complete /,
        ...(status === 0 ? [/^kubectl apply .*postgres/, /^kubectl rollout status /] : []),
      ),
    );
  }
  t.end();
});

t.test(
  'a move back or a restore has ended all pods before, and none serves before its end',
  (t) => {
    const ended = [
      /^scale .*=0$/,
      /^wait --for=delete pod --selector=app=plant-store .*status\.phase!=Failed /,
    ];
    const exported = [
      ...ended,
      /^patch .*-wait\.yml$/,
      /^scale .*=1$/,
      /^rollout status /,
      /^exec .* export$/,
    ];
    const imported = [
      /^apply --filename=-$/,
      /^rollout status /,
      /^patch .*-wait\.yml$/,
      /^scale .*=1$/,
      /^rollout status /,
      // It prints how many plants it has imported. Only then does a pod serve.
      /^exec --stdin .* import -$/,
    ];
    const onLog = [/^patch .*-wait\.yml$/, /^rollout status /];
    for (const [commands, calls] of [
      [EXPORT, exported],
      [BACK, imported],
      [RESTORE[0] ?? '', ended],
      [RESTORE[1] ?? '', imported.slice(2)],
      [blocks('Commands on a log', 'sh')[0] ?? '', onLog],
    ] as const)
      // After each command that fails, none of the others runs.
      for (const failing of calls.keys()) {
        const kubectl = `#!/bin/sh
        echo "$*" >> called
        [ $(wc -l < called) -le ${failing} ]`;
        const cwd = t.testdir({ bin: { kubectl }, 'kubernetes-log.yml': '', 'exported.jsonl': '' });
        chmodSync(join(cwd, 'bin/kubectl'), 0o755);
        const env = { PATH: `${join(cwd, 'bin')}:${process.env.PATH}` };
        t.equal(spawnSync('sh', ['-uc', commands], { cwd, env }).status, 1);
        t.match(
          readFileSync(join(cwd, 'called'), 'utf8').trim().split('\n'),
          exactly(...calls.slice(0, failing + 1)),
        );
      }
    t.end();
  },
);

t.test('a pod with PostgreSQL can export and import plants', async (t) => {
  const printed = commandsIn('kubernetes-postgres.yml') + EXPORT;
  const commands = [...printed.matchAll(/ -- node (\S+) (\w+(?: -)?) [<>] exported\.jsonl\n/g)];
  t.strictSame(
    commands.map(([, , command]) => command),
    ['export', 'import -', 'import -', 'export'],
  );
  for (const [, script = '', command = ''] of commands) {
    t.ok(existsSync(script.replace('/app', '.')));
    const { folder, settings } = settingsOf(t, POSTGRES.get('Deployment'));
    const { code, stderr } = await runHere(t, {
      cwd: folder,
      args: command.split(' '),
      env: settings,
    });
    t.match({ code, stderr }, { code: 1, stderr: /DATABASE_URL: .*ECONNREFUSED/ });
  }
});

t.test('a move back to a log starts without a pod', async (t) => {
  const [, expression = ''] = /^sed '(.*)' kubernetes-log\.yml/m.exec(COMMANDS_OF_IMPORT) ?? [];
  const edited = spawnSync('sed', [expression, join(FOLDER, 'kubernetes-log.yml')], {
    encoding: 'utf8',
  });
  t.match(edited.stdout, '\n  replicas: 0 # one log serves one process\n');
});

t.test('units, pods and pm2 give the program enough time and memory', async (t) => {
  const bytes = FIXED_MIB * 2 ** 20 + DEFAULT_LIMITS.maxBufferedBytes + 10e6 * 40;
  t.ok(bytes <= 2 ** 30, `${bytes} bytes, with the index of 10 million plants`);
  t.equal(directives(UNIT).get('MemoryMax'), '1G');
  const [, killTimeout] = /`--kill-timeout (\d+)`/.exec(README) ?? [];
  t.ok(SHUTDOWN_MS < Number(killTimeout));
  for (const container of CONTAINERS) {
    t.match(container, { resources: { limits: { memory: '1Gi' }, requests: { memory: '1Gi' } } });
  }
});

/**
 * Requests the pages of a container's probes from the monitor at a port. Resolves to the statuses.
 */
async function probe(t: Test, container: Container, port: string): Promise<readonly number[]> {
  const statuses = [];
  for (const name of ['livenessProbe', 'readinessProbe']) {
    t.equal(at(container, `/${name}/httpGet/port`), 'monitor');
    const path = String(at(container, `/${name}/httpGet/path`));
    statuses.push((await fetch(`http://127.0.0.1:${port}${path}`)).status);
  }
  return statuses;
}

t.test('while the program starts, a pod is alive but not ready', async (t) => {
  const { folder, settings } = settingsOf(t, POSTGRES.get('Deployment'));
  const env = { ...settings, PLANT_STORE_MONITOR_PORT: String(await freePort()) };
  const program = launchHere(t, { cwd: folder, env });
  await program.says('stderr', /ECONNREFUSED 127.0.0.1:2; trying again/);
  for (const container of CONTAINERS)
    t.strictSame(await probe(t, container, env.PLANT_STORE_MONITOR_PORT), [200, 503]);
  program.send('SIGTERM');
  t.strictSame(await program.ended, DONE);
});

t.test('once the program serves, a pod is ready', async (t) => {
  const cwd = t.testdir({ tokens: TOKEN });
  const env = { PLANT_STORE_TOKEN_FILE: 'tokens', PLANT_STORE_MONITOR_PORT: '0' };
  const program = await startHere(t, { cwd, env: { ...ENV, ...env } });
  const [, port = ''] = await program.says('stdout', /^monitor: http:\/\/0\.0\.0\.0:(\d+)\n/m);
  for (const container of CONTAINERS) t.strictSame(await probe(t, container, port), [200, 200]);
});

t.test('a readiness probe waits as long as the database may take to answer', async (t) => {
  for (const container of CONTAINERS) {
    const seconds = at(container, '/readinessProbe/timeoutSeconds');
    t.ok(Number(seconds) * 1_000 >= DEFAULTS.timeoutMs, String(seconds));
  }
});

t.test(
  'Docker and Kubernetes accept the options of all commands',
  { skip: missing('docker', 'kubectl') },
  async (t) => {
    const { key, cert } = selfSigned();
    const clusters = [{ name: 'none', cluster: { server: 'http://127.0.0.1:1' } }];
    const contexts = [{ name: 'none', context: { cluster: 'none' } }];
    const cwd = t.testdir({
      src: t.fixture('symlink', resolve('src')),
      config: JSON.stringify({ clusters, contexts, 'current-context': 'none' }),
      ...SECRETS,
      'plants.backup.jsonl': '',
      'plants.key': key,
      'plants.pem': cert,
    });
    cpSync(FOLDER, cwd, { recursive: true });
    const documented = README.match(/(?<=^```sh\n)(?:docker|kubectl) [^]*?(?=^```$)/gm) ?? [];
    const manifests = readdirSync(FOLDER).filter((name) => /^kubernetes-.*\.yml$/.test(name));
    const inComments = [...manifests, 'Dockerfile'].map(commandsIn);
    t.equal(inComments.join('').match(/^.*kubectl /gm)?.length, 42);
    const commands = [...documented, ...inComments]
      .join('')
      // Without its loop, each command runs once, although the one before it fails.
      .replaceAll(/^until |^do sleep 2\ndone\n| &&$/gm, '');
    const env = { ...process.env, DOCKER_HOST: 'unix:///none', KUBECONFIG: 'config' };
    const { stderr } = spawnSync('sh', ['-uc', commands], { cwd, env, encoding: 'utf8' });
    t.strictSame(stderr.match(/^.*unknown.*$/gm) ?? [], []);
    // Each command gets as far as connecting to a server. kubectl also logs its attempts, each with
    // a code.
    const tried =
      /^(?!E\d).*(?:Cannot connect to the Docker|:1 was refused|connection refused).*$/gm;
    // The first command of the pipe that creates the Secret connects to no server, and `delete` tries
    // to connect for each object in the manifest.
    const run = commands.match(/^(?:.* \| | *)(?:docker|kubectl) /gm) ?? [];
    t.equal(stderr.match(tried)?.length, run.length - 1 + (POSTGRES.size - 1) + (LOG.size - 1));
  },
);

t.test('a copy of a log from a pod is complete, or there is none', (t) => {
  const log = [FERN, IVY].map(encodeRecord).join('');
  const [, path = ''] = / -- gzip --stdout (\S+) > /.exec(BACKUP) ?? [];
  t.equal(path, containerOf(JOB).command?.at(-1));
  /** Runs the commands with a kubectl that ends with code 0, whatever its output is cut to. */
  function copyThrough(cut: string) {
    // `exec`, the Deployment and `--` come before the command.
    const kubectl = `#!/bin/sh\nshift 3\n"$@" | ${cut}\n`;
    const cwd = t.testdir({ bin: { kubectl }, data: { 'plants.jsonl': log } });
    chmodSync(join(cwd, 'bin/kubectl'), 0o755);
    const env = { PATH: `${join(cwd, 'bin')}:${process.env.PATH}` };
    const commands = BACKUP.replace(path, join(cwd, path));
    const { status } = spawnSync('sh', ['-euc', commands], { cwd, env });
    const copy = join(cwd, 'plants.backup.jsonl');
    return { status, copy: existsSync(copy) && readFileSync(copy, 'utf8') };
  }
  t.strictSame(copyThrough('cat'), { status: 0, copy: log });
  for (const bytes of [0, 20, 60])
    t.match(copyThrough(`head -c ${bytes}`), { status: 1, copy: false }, `${bytes} bytes`);
  t.end();
});

t.test('with the documented patch, the pods of both manifests wait for commands', async (t) => {
  const files = [
    ...`${IN_POD}${COMMANDS_OF_IMPORT}${RESTORE.join('')}`.matchAll(/ --patch-file=(\S+)/g),
  ];
  const [[, file = ''] = []] = files;
  t.strictSame(
    files.map(([, name]) => name),
    [file, file, file, file],
  );
  const patch = parse(fileOf(file)) as { op: string; path: string; value: unknown }[];
  for (const manifests of [LOG, POSTGRES]) {
    const patched = structuredClone(manifests.get('Deployment'));
    for (const { op, path, value } of patch) {
      const parent = at(patched, dirname(path)) as Record<string, unknown>;
      t.equal(basename(path) in parent, op === 'remove', `${op} ${path}`);
      parent[basename(path)] = value;
    }
    const container = containerOf(patched);
    t.match(container, { livenessProbe: undefined, readinessProbe: undefined });
    t.strictSame(container.command, ['sleep', 'infinity']);
    // Kubernetes refuses a pod whose preStop sleeps longer than the pod may take to end.
    const preStop = container.lifecycle?.preStop.sleep.seconds ?? 0;
    const seconds = at(patched, `${POD}/terminationGracePeriodSeconds`);
    t.ok(preStop < Number(seconds), `${preStop} s of ${String(seconds)} s`);
  }

  const ivy = encodeRecord(IVY);
  const cwd = t.testdir({ data: { 'plants.jsonl': `${ivy}x\n` } });
  const [repair = [], restore = []] = [...IN_POD.matchAll(/ -- node (\S+) (.*)\n/g)];
  for (const [, script = ''] of [repair, restore]) t.ok(existsSync(script.replace('/app', '.')));
  const repaired = await runHere(t, { cwd, env: ENV, args: repair[2]?.split(' ') ?? [] });
  t.match(repaired, { code: 1, stdout: /kept 1 plant, removed 1 damaged line/ });
  const log = join(cwd, 'data/plants.jsonl');
  t.equal(readFileSync(log, 'utf8'), ivy);

  renameSync(log, join(cwd, 'plants.backup.jsonl'));
  const command = `"$0" ${resolve('dist/server.js')} ${restore[2]}`;
  t.equal(spawnSync('sh', ['-euc', command, process.execPath], { cwd, env: {} }).status, 0);
  t.equal(readFileSync(log, 'utf8'), ivy);
});
