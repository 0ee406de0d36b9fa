import t from 'tap';

import { blocks } from './readme.js';
import { exchange, message, TOKEN } from './client.js';
import { ENV, start, SERVER } from './system/program.js';

const [ACCESS_LOG = '', TRACING = ''] = blocks('Access log and traces', 'js');

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

t.test('the preloads log each answer, and add its error to the span', async (t) => {
  const cwd = t.testdir({
    'access-log.mjs': ACCESS_LOG,
    'error-in-traces.mjs': TRACING,
    'node_modules/@opentelemetry/api': {
      'package.json': '{"type":"module","exports":"./index.js"}',
      'index.js': API,
    },
  });
  const imports = ['--import', './access-log.mjs', '--import', './error-in-traces.mjs'];
  const program = await start(t, {
    cwd,
    env: ENV,
    command: [process.execPath, ...imports, SERVER],
  });
  const requests = [
    message(),
    message({ body: '{"id":7,"name":"ivy"}' }),
    message({ target: '/a"\\b', headers: { Authorization: undefined } }),
    Buffer.from('this is not HTTP\r\n\r\n'),
  ];
  for (const request of requests) await exchange(t, program.port, request);
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
  t.strictSame(program.stderr.match(/^span .*$/gm), [
    'span /plants plant_store.error 0',
    'span /plants plant_store.error 409',
    'span /a"\\b plant_store.error 401',
  ]);
});
