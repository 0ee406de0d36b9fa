import { spawnSync } from 'node:child_process';
import { chmodSync, chownSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';

import t, { type Test } from 'tap';
import { parseAllDocuments } from 'yaml';

import { DEFAULT_LIMITS } from '../../dist/http/limits.js';
import { encodeRecord } from '../../dist/log/record.js';
import { EXIT } from '../../dist/program/exit.js';
import { readServerSettings } from '../../dist/program/settings/rules.js';
import { SETTINGS } from '../../dist/program/settings/table.js';
import { SHUTDOWN_MS } from '../../dist/program/signals.js';
import { selfSigned } from '../helpers/certificate.js';
import { TOKEN } from '../helpers/client.js';
import { block, blocks, read, settingsIn } from '../helpers/documents.js';
import { exactly } from '../helpers/exactly.js';
import { missing } from '../helpers/needs.js';
import { IVY } from '../helpers/plants.js';
import { DONE, launch, launchHere, runHere, serving, startHere } from '../helpers/program.js';
import { freePort } from '../helpers/service.js';
import { FIXED_MIB } from '../hostile/memory.js';

const TARGETS = block('Kubernetes', 'yaml');
const [IMPORT = '', RELOAD = '', REPAIR = ''] = blocks('Kubernetes', 'sh');
const [UNIT = '', , ...EXTENSIONS] = blocks('systemd', 'ini');

/** The manifests in a file, by their kinds. */
function manifestsIn(file: string): ReadonlyMap<string, unknown> {
  const documents = parseAllDocuments(readFileSync(join('src/program/deploy', file), 'utf8'));
  const manifests = documents.map((document) => document.toJS() as { readonly kind: string });
  return new Map(manifests.map((manifest) => [manifest.kind, manifest]));
}

const LOG = manifestsIn('kubernetes-log.yml');
const POSTGRES = manifestsIn('kubernetes-postgres.yml');

/** The only container of a Deployment or a Job, as far as the tests read it. */
interface Container {
  readonly command?: readonly string[];
  readonly env: readonly { readonly name: string; readonly value: string }[];
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
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
const ENV = envOf(containerOf(LOG.get('Deployment')));
const CONTAINERS = [LOG, POSTGRES].map((manifests) => containerOf(manifests.get('Deployment')));

/** The settings of a Deployment or a Job, with its Secret in a folder of the test. */
function settingsOf(t: Test, manifests: ReadonlyMap<string, unknown>, kind: string) {
  const container = containerOf(manifests.get(kind));
  const { mountPath = '' } = container.volumeMounts.find(({ name }) => name === 'secrets') ?? {};
  const folder = t.testdir(at(manifests.get('Secret'), '/stringData') as Record<string, string>);
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

/** The user of the service: not root, even if root runs this. */
const USER = 65_534;
const isRoot = process.getuid?.() === 0;
const AS_USER = isRoot ? ['setpriv', `--reuid=${USER}`, `--regid=${USER}`, '--clear-groups'] : [];
const noUser =
  spawnSync('env', [...AS_USER, 'test', '-r', 'dist/server.js']).status !== 0 &&
  'needs a folder that others may read';

t.test(
  'with the units, root enables, fills, starts, reloads and stops the service',
  { skip: noUser },
  async (t) => {
    const folder = t.testdir({
      bin: { systemctl: '#!/bin/sh\necho "$0 $@"\n' },
      state: {},
      'plants.backup.jsonl': encodeRecord(IVY),
    });
    const state = join(folder, 'state');
    chmodSync(join(folder, 'bin/systemctl'), 0o755);
    if (isRoot) chownSync(state, USER, USER);
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

    const unit = directives(UNIT);
    t.equal(unit.get('RestartPreventExitStatus'), String(EXIT.usage));
    const settings = settingsIn(here(UNIT));
    t.match(block('Prometheus', 'yaml'), `127.0.0.1:${settings.PLANT_STORE_MONITOR_PORT}'`);
    const env = { ...settings, PLANT_STORE_MONITOR_PORT: '0', NODE_V8_COVERAGE: '' };
    const command = here(unit.get('ExecStart') ?? '').split(' ');
    const program = await serving(launch(t, { cwd: folder, env, under: AS_USER, command }), TOKEN);
    t.equal(program.plants, 1);
    t.match(here(read('.github/DEPLOYING.md')), `the token is in \`${join(state, 'token')}\``);
    t.ok(existsSync(join(state, 'token')));

    const [, reloadPod = ''] = /-- sh -c '(.* )1'\n$/.exec(RELOAD) ?? [];
    const reloads = [unit.get('ExecReload') ?? '', `${reloadPod}${program.pid}`];
    for (const [n, reload] of reloads.entries()) {
      // In a slim image, no program can be found.
      spawnSync('/bin/sh', ['-euc', reload], { env: { PATH: '', MAINPID: String(program.pid) } });
      await program.says('stderr', new RegExp(`(?:accepts 1 token\\n[^]*){${n + 1}}`));
    }
    t.strictSame(await program.stop('SIGTERM'), DONE);
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

t.test('the program starts with the settings of the document for PostgreSQL', async (t) => {
  const commands = block('The program', 'sh').replace('@db1,db2/', '@127.0.0.1:1,127.0.0.1:2/');
  const cwd = t.testdir({ tokens: TOKEN, password: 'a-secret' });
  const program = launchHere(t, { cwd, env: settingsIn(commands) });
  await program.says('stderr', /ECONNREFUSED 127.0.0.1:2; trying again/);
  program.send('SIGTERM');
  t.strictSame(await program.ended, DONE);
});

t.test('the manifests refer to names that exist, and to settings of the program', async (t) => {
  const [, volume] = /\nVOLUME (.*)\n/.exec(block('A container', 'dockerfile')) ?? [];
  for (const manifests of [LOG, POSTGRES]) {
    const [service, deployment] = ['Service', 'Deployment'].map((kind) => manifests.get(kind));
    const labels = at(deployment, '/spec/template/metadata/labels') as { app: string };
    t.strictSame(at(service, '/spec/selector'), labels);
    t.strictSame(at(deployment, '/spec/selector/matchLabels'), labels);
    t.match(TARGETS, `regex: ${labels.app};monitor\n`);

    // A log on the volume of the former is imported by the latter.
    const names = [...LOG.values(), ...manifests.values()].map((each) =>
      at(each, '/metadata/name'),
    );
    const text = JSON.stringify([...manifests.values()]);
    for (const [, name] of text.matchAll(/"(?:claimName|secretName)":"(.*?)"/g))
      t.ok(names.includes(name), `there is a ${name}`);
    for (const [, path] of text.matchAll(/"data","mountPath":"(.*?)"/g)) t.equal(path, volume);

    const { settings } = settingsOf(t, manifests, 'Deployment');
    const read = await readServerSettings(settings);
    t.match(read.tokenSource, { kind: 'file', tokens: exactly('a-secret-token') });
    t.match(at(service, '/spec/ports'), exactly({ targetPort: 'http' }));
    t.strictSame(at(deployment, `${POD}/containers/0/ports`), [
      { name: 'http', containerPort: Number(SETTINGS.PLANT_STORE_PORT.fallback) },
      { name: 'monitor', containerPort: Number(settings.PLANT_STORE_MONITOR_PORT) },
    ]);
  }
});

t.test('the Job imports the log of the other manifest before the pods serve', async (t) => {
  const job = POSTGRES.get('Job');
  const [node, script = '', command, log] = containerOf(job).command ?? [];
  t.strictSame([node, dirname(script), command], ['node', '/app/dist', 'import']);
  t.equal(log, `/data/${basename(SETTINGS.PLANT_STORE_FILE.fallback)}`);
  const { folder, settings } = settingsOf(t, POSTGRES, 'Job');
  writeFileSync(join(folder, 'plants.jsonl'), '{}\n');
  const options = { cwd: folder, args: ['import', 'plants.jsonl'], env: settings };
  t.match(await runHere(t, options), { code: 1, stderr: /DATABASE_URL: .*ECONNREFUSED/ });

  // What the command selects is the Job and what it needs.
  const [, key = '', value] = /--selector=(\w+)=(\S+)/.exec(IMPORT) ?? [];
  const labels = [...POSTGRES].map(([kind, each]) => [kind, at(each, '/metadata/labels')]);
  const selected = { [key]: value };
  t.strictSame(Object.fromEntries(labels), {
    Secret: selected,
    Job: selected,
    Service: undefined,
    Deployment: undefined,
  });
  t.match(IMPORT, `job/${String(at(job, '/metadata/name'))}\n`);
});

t.test('units, pods and pm2 give the program enough time and memory', async (t) => {
  const GRACE_SECONDS = 30;
  const bytes = FIXED_MIB * 2 ** 20 + DEFAULT_LIMITS.maxBufferedBytes + 10e6 * 40;
  t.ok(bytes <= 2 ** 30, `${bytes} bytes, with the index of 10 million plants`);
  const unit = directives(UNIT);
  t.equal(unit.get('MemoryMax'), '1G');
  // By default, systemd gives up after five starts in ten seconds.
  t.ok(5 * Number(unit.get('RestartSec')) > 10);
  const [, killTimeout] = /`--kill-timeout (\d+)`/.exec(read('.github/DEPLOYING.md')) ?? [];
  t.ok(SHUTDOWN_MS < Number(killTimeout));
  const replicas = [LOG, POSTGRES].map((each) => at(each.get('Deployment'), '/spec/replicas'));
  t.strictSame(replicas, [1, 2], 'one log serves one process');
  for (const container of CONTAINERS) {
    const seconds = at(container, '/lifecycle/preStop/sleep/seconds') as number;
    t.ok(seconds + SHUTDOWN_MS / 1_000 < GRACE_SECONDS);
    t.match(container, { resources: { limits: { memory: '1Gi' }, requests: { memory: '1Gi' } } });
  }
});

t.test('the probes are pages of the monitor', async (t) => {
  const cwd = t.testdir({ tokens: TOKEN });
  const env = { PLANT_STORE_TOKEN_FILE: 'tokens', PLANT_STORE_MONITOR_PORT: '0' };
  const program = await startHere(t, { cwd, env: { ...ENV, ...env } });
  const [, port = ''] = await program.says('stdout', /^monitor: http:\/\/0\.0\.0\.0:(\d+)\n/m);
  for (const container of CONTAINERS)
    for (const probe of ['livenessProbe', 'readinessProbe']) {
      t.equal(at(container, `/${probe}/httpGet/port`), 'monitor');
      const path = String(at(container, `/${probe}/httpGet/path`));
      t.equal((await fetch(`http://127.0.0.1:${port}${path}`)).status, 200, path);
    }
});

t.test(
  'Docker and Kubernetes accept the options of all commands',
  { skip: missing('docker', 'kubectl') },
  async (t) => {
    const clusters = [{ name: 'none', cluster: { server: 'http://127.0.0.1:1' } }];
    const contexts = [{ name: 'none', context: { cluster: 'none' } }];
    const cwd = t.testdir({
      Dockerfile: block('A container', 'dockerfile'),
      'kubernetes-postgres.yml': t.fixture(
        'symlink',
        resolve('src/program/deploy/kubernetes-postgres.yml'),
      ),
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

t.test('with the documented patch, a pod waits for a command that repairs the log', async (t) => {
  const [, patch = '[]'] = /--patch='([^']*)'/.exec(REPAIR) ?? [];
  const patched = structuredClone(LOG.get('Deployment'));
  for (const { op, path, value } of JSON.parse(patch) as {
    op: string;
    path: string;
    value: unknown;
  }[]) {
    const parent = at(patched, dirname(path)) as Record<string, unknown>;
    t.equal(basename(path) in parent, op === 'remove', `${op} ${path}`);
    parent[basename(path)] = value;
  }
  const container = { livenessProbe: undefined, command: ['sleep', 'infinity'] };
  t.match(containerOf(patched), { ...container, readinessProbe: undefined });

  const ivy = encodeRecord(IVY);
  const cwd = t.testdir({ data: { 'plants.jsonl': `${ivy}x\n` } });
  const [, script = '', args = ''] = / -- node (\S+) (.*)\n/.exec(REPAIR) ?? [];
  t.ok(existsSync(script.replace('/app', '.')));
  const repaired = await runHere(t, { cwd, env: ENV, args: args.split(' ') });
  t.match(repaired, { code: 1, stdout: /kept 1 plant, removed 1 damaged line/ });
  t.equal(readFileSync(join(cwd, 'data/plants.jsonl'), 'utf8'), ivy);
});
