import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { blocks } from './readme.js';
import { exchange, message, TOKEN } from './client.js';
import { start, SERVER, type Program } from './system/program.js';

const [ACCESS_LOG = '', TRACING = ''] = blocks('Access log and traces', 'js');

/** Starts the program with a documented preload, and sends it requests. */
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

/** The least that has the interface of OpenTelemetry's package, and creates a span for each request. */
const API = `import { AsyncLocalStorage } from 'node:async_hooks';
import { Server } from 'node:http';
const spans = new AsyncLocalStorage();
export const trace = { getActiveSpan: () => spans.getStore() };
const { emit } = Server.prototype;
Server.prototype.emit = function (event, ...args) {
  if (event !== 'request') return emit.call(this, event, ...args);
  const { url } = args[0];
  const span = { setAttribute: (...attribute) => console.error('span', url, ...attribute) };
  return spans.run(span, () => emit.call(this, event, ...args));
};`;

t.test('the preload for traces puts the error on the span of its request', async (t) => {
  t.testdir({
    'node_modules/@opentelemetry/api': {
      'package.json': '{"type":"module","exports":"./index.js"}',
      'index.js': API,
    },
  });
  const program = await runWith(t, 'error-in-traces.mjs', TRACING);
  t.match(await program.stop('SIGTERM'), { code: 0 });
  t.strictSame(program.stderr.match(/^span .*$/gm), [
    'span /plants plant_store.error 0',
    'span /plants plant_store.error 409',
    'span /a"\\b plant_store.error 401',
  ]);
});
