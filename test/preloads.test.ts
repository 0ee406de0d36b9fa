import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { blocks } from './readme.js';
import { exchange, message, TOKEN } from './client.js';
import { start, SERVER, type Program } from './system/program.js';

const [ACCESS_LOG = '', TRACING = ''] = blocks('Access log and traces', 'js');

/** Starts the program with a preload of the README, and sends it requests. */
async function runWith(t: Test, name: string, preload: string): Promise<Program> {
  const cwd = t.testdirName;
  writeFileSync(join(cwd, name), preload);
  const command = [process.execPath, '--import', `./${name}`, SERVER];
  const env = {
    PLANT_STORE_TOKEN: TOKEN,
    PLANT_STORE_FILE: 'plants.jsonl',
    PLANT_STORE_MONITOR_PORT: '0',
  };
  const program = await start(t, { cwd, env, command });
  const requests = [
    message(),
    message({ body: '{"id":7,"name":"ivy"}' }),
    message({ target: '/a"\\b', headers: { Authorization: undefined } }),
  ];
  for (const request of requests) await exchange(t, program.port, request);
  return program;
}

t.test('the preload for an access log writes a line for each answer', async (t) => {
  t.testdir();
  const program = await runWith(t, 'access-log.mjs', ACCESS_LOG);
  await exchange(t, program.port, Buffer.from('this is not HTTP\r\n\r\n'));
  t.match(await program.stop('SIGTERM'), { code: 0 });
  const lines = program.stdout.split('\n').filter((line) => line.startsWith('{'));
  t.strictSame(
    lines.map((line) => {
      const { time, ...rest } = JSON.parse(line) as Record<string, unknown>;
      t.ok(Math.abs(Date.parse(String(time)) - Date.now()) < 3_600_000);
      return rest;
    }),
    [
      { client: '127.0.0.1', method: 'POST', url: '/plants', status: 200, error: 0 },
      { client: '127.0.0.1', method: 'POST', url: '/plants', status: 400, error: 409 },
      { client: '127.0.0.1', method: 'POST', url: '/a"\\b', status: 401, error: 401 },
      { status: 400, error: 400 },
    ],
  );
  t.notMatch(program.stdout, TOKEN);
});

/** The least that has the interface of OpenTelemetry's packages: a span for each request. */
const PACKAGES = {
  'api/index.js': `import { AsyncLocalStorage } from 'node:async_hooks';
    export const spans = new AsyncLocalStorage();
    export const trace = { getActiveSpan: () => spans.getStore() };`,
  'instrumentation/hook.mjs': `console.error('the hook is registered');`,
  'instrumentation-http/index.js': `import { Server } from 'node:http';
    import { spans } from '@opentelemetry/api';
    const { emit } = Server.prototype;
    export class HttpInstrumentation {
      constructor({ ignoreIncomingRequestHook }) { this.ignores = ignoreIncomingRequestHook; }
      enable() {
        const { ignores } = this;
        Server.prototype.emit = function (event, ...args) {
          if (event !== 'request' || ignores(args[0])) return emit.call(this, event, ...args);
          console.error('traced', args[0].url);
          const span = { setAttribute: (...attribute) => console.error('span', ...attribute) };
          return spans.run(span, () => emit.call(this, event, ...args));
        };
      }
    }`,
  'sdk-node/index.js': `export class NodeSDK {
      constructor({ instrumentations }) { this.start = () => instrumentations[0].enable(); }
      async shutdown() { console.error('the SDK is shut down'); }
    }`,
};

t.test('the preload for traces puts the error on the span of its request', async (t) => {
  const cwd = t.testdir();
  for (const [path, code] of Object.entries(PACKAGES)) {
    const folder = join(cwd, 'node_modules/@opentelemetry', path.split('/')[0] ?? '');
    mkdirSync(folder, { recursive: true });
    writeFileSync(
      join(folder, 'package.json'),
      '{"type":"module","exports":{".":"./index.js","./hook.mjs":"./hook.mjs"}}',
    );
    writeFileSync(join(folder, path.split('/')[1] ?? ''), code);
  }
  const program = await runWith(t, 'tracing.mjs', TRACING);
  await program.says('stderr', /span plant_store\.error 401/);
  const [, monitor = ''] = await program.says('stdout', /^monitor: (.*)\n/m);
  for (const page of ['/livez', '/readyz', '/metrics']) await fetch(monitor + page);
  t.match(await program.stop('SIGTERM'), { code: 0 });
  t.match(program.stderr, 'the hook is registered\n');
  const spans = [...program.stderr.matchAll(/^span plant_store\.error (\d+)$/gm)];
  t.strictSame(
    spans.map(([, error]) => error),
    ['0', '409', '401'],
  );
  const traced = [...program.stderr.matchAll(/^traced (.*)$/gm)].map(([, url]) => url);
  t.strictSame(traced, ['/plants', '/plants', '/a"\\b']);
  t.match(program.stderr, 'the SDK is shut down\n');
});
