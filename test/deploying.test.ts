import { execFile } from 'node:child_process';
import { cpSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { format } from 'prettier';
import t from 'tap';

import { LOG_SETTINGS } from '../dist/program/environment.js';
import { startMetrics } from '../dist/program/metrics.js';
import { exchange, message, TOKEN } from './client.js';
import { noPromtool } from './metrics.js';
import { block, blocks } from './readme.js';
import { launch, start } from './system/program.js';

const DOCKERFILE = block('A container', 'dockerfile');
const DEPLOYMENT = block('Kubernetes', 'yaml');
const [SCRAPING = '', RULES = ''] = blocks('Prometheus', 'yaml');

t.test('what the Dockerfile copies, with its settings and command, is the program', async (t) => {
  const cwd = t.testdir({ data: {} });
  const [, stage = ''] = DOCKERFILE.split(/^FROM .*$/m).slice(1);
  for (const [, from = '', to = ''] of stage.matchAll(/^COPY --from=build \/app\/(\S+) (\S+)$/gm)) {
    const source = from === 'node_modules' ? 'node_modules/typebox' : from;
    mkdirSync(join(cwd, 'node_modules'), { recursive: true });
    cpSync(source, join(cwd, to === './' ? from : source), { recursive: true });
  }
  const [, settings = ''] = /^ENV (.*)$/m.exec(stage) ?? [];
  const env = Object.fromEntries(
    settings.split(' ').map((each) => each.split('=') as [string, string]),
  );
  for (const name of Object.keys(env))
    t.ok(
      LOG_SETTINGS.some((each) => each === name),
      name,
    );
  const [, command = '[]'] = /^CMD (.*)$/m.exec(stage) ?? [];
  const [node, ...args] = JSON.parse(command) as string[];
  t.equal(node, 'node');
  const file = join(cwd, env.PLANT_STORE_FILE ?? '');
  const options = { ...env, PLANT_STORE_FILE: file, PLANT_STORE_TOKEN: TOKEN };
  const program = await start(t, { cwd, env: options, command: [process.execPath, ...args] });
  t.match(program.url, '0.0.0.0');
  t.equal((await exchange(t, program.port, message())).status, 200);
  t.strictSame(await program.stop('SIGTERM'), { code: 0, signal: null });
});

t.test('the Deployment is YAML, and its probes are pages of the monitor', async (t) => {
  await t.resolves(format(DEPLOYMENT, { parser: 'yaml' }));
  const settings = [...DEPLOYMENT.matchAll(/name: (PLANT_STORE_\w+)\n +value: '?([^'\n]+)/g)];
  const env = Object.fromEntries(settings.map(([, name = '', value = '']) => [name, value]));
  for (const name of Object.keys(env))
    t.ok(
      LOG_SETTINGS.some((each) => each === name),
      name,
    );
  const containerPort = `containerPort: ${env.PLANT_STORE_MONITOR_PORT}`;
  t.match(DEPLOYMENT, `- name: monitor\n              ${containerPort}\n`);

  const cwd = t.testdir({ tokens: TOKEN });
  const program = await start(t, {
    cwd,
    env: { ...env, PLANT_STORE_TOKEN_FILE: 'tokens', PLANT_STORE_MONITOR_PORT: '0' },
  });
  const [, port = ''] = await program.says('stdout', /^monitor: http:\/\/0\.0\.0\.0:(\d+)\n/m);
  const probes = [...DEPLOYMENT.matchAll(/httpGet:\n +path: (\S+)\n +port: monitor\n/g)];
  t.equal(probes.length, 2);
  for (const [, path = ''] of probes)
    t.equal((await fetch(`http://127.0.0.1:${port}${path}`)).status, 200, path);
});

t.test(
  'a port that Kubernetes sets for a Service does not keep the program from starting',
  async (t) => {
    const env = {
      PLANT_STORE_TOKEN: TOKEN,
      PLANT_STORE_MONITOR_PORT: 'tcp://10.0.0.1:8081',
      PLANT_STORE_MONITOR_SERVICE_HOST: '10.0.0.1',
    };
    const program = launch(t, { cwd: t.testdir(), env });
    await program.says('stdout', /^token: /m);
    t.match(program.stderr, /^plant-store: PLANT_STORE_MONITOR_PORT: ignored/);
  },
);

t.test('Prometheus accepts the configuration and the alerts', { skip: noPromtool }, async (t) => {
  const cwd = t.testdir({ 'prometheus.yml': SCRAPING, 'plant-store.rules.yml': RULES });
  const promtool = promisify(execFile);
  const { stdout } = await promtool('promtool', ['check', 'config', 'prometheus.yml'], { cwd });
  t.match(stdout, 'prometheus.yml is valid');
  t.match(stdout, 'SUCCESS: 5 rules found');
});

t.test('the alerts are about metrics that exist', async (t) => {
  const metrics = startMetrics()({ open: 0, dropped: 0, limit: 0 });
  const names = [...RULES.matchAll(/(?:plant_store|nodejs)_\w+/g)];
  t.equal(names.length, 5);
  for (const [name] of names) t.match(metrics, new RegExp(`^${name}[{ ]`, 'm'));
});
