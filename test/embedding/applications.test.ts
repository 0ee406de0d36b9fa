import { appendFileSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import fastify, { type InjectOptions } from 'fastify';
import t from 'tap';

import {
  createPlantHandler,
  openapi,
  type HttpRequest,
  type HttpResponse,
  type PlantHandler,
} from '../../dist/index.js';
import {
  anyAnswer,
  connect,
  exchange,
  FERN,
  message,
  refusesConnections,
  TOKEN,
  type Message,
} from '../client.js';
import { exactly } from '../exactly.js';
import { isReleased } from '../service.js';
import { storeOf } from '../stores.js';
import { DONE } from '../system/program.js';
import { startApplication, type Application } from './application.js';

const logOf = ({ cwd }: Application): string => join(cwd, 'data/plants.jsonl');

/** Programs of `test/examples/`, and the path at which each of them serves plants. */
const APPLICATIONS: Readonly<Record<string, string>> = {
  http: '/plants',
  express: '/plants',
  'express-middleware': '/garden/plants',
  fastify: '/plants',
  'fastify-plugins': '/plants',
  'fastify-middie': '/garden/plants',
  hono: '/plants',
  koa: '/plants',
  'koa-parser': '/plants',
};

const OF_FRAMEWORK = /Cannot POST \/elsewhere|POST:\/elsewhere not found|^(?:404 )?Not Found$/;

for (const [name, target] of Object.entries(APPLICATIONS))
  t.test(`${name}: plants get exact answers, other paths the application's`, async (t) => {
    const application = await startApplication(t, name);
    const rows: readonly [parts: Message, expected: object][] = [
      [{ body: '{"id":7,"name":"Löwenmaul"}' }, { status: 200, body: '{"name":"Löwenmaul"}' }],
      [{ body: '{"id":9007199254740993,"name":"ivy"}' }, { status: 200 }],
      [{ headers: { Authorization: 'Bearer wrong' } }, { status: 401 }],
      [{ body: '{"id":8,"name":null}' }, { status: 400, body: '{"error":422,' }],
    ];
    for (const [parts, expected] of rows)
      t.match(await exchange(t, application.port, message({ target, ...parts })), expected);
    const stored = readFileSync(logOf(application), 'utf8').match(/(?<=^\{"id":)\d+/gm);
    t.strictSame(stored, ['7', '9007199254740993']);
    const elsewhere = message({ target: '/elsewhere' });
    const { body } = await exchange(t, application.port, elsewhere, anyAnswer);
    t.match(body, name === 'http' ? '{"error":404,' : OF_FRAMEWORK);
  });

t.test('a client that the application has authenticated needs no token', async (t) => {
  const { port } = await startApplication(t, 'express-middleware');
  const statuses = [];
  for (const Cookie of ['gardener=1', 'gardener=0']) {
    const request = message({ target: '/garden/plants', headers: { Authorization: '', Cookie } });
    statuses.push((await exchange(t, port, request)).status);
  }
  t.strictSame(statuses, [200, 401]);
});

const ORIGIN = 'https://garden.example';
const READABLE = {
  'access-control-allow-origin': ORIGIN,
  'access-control-expose-headers': 'Retry-After',
};
const PREFLIGHT = {
  Origin: ORIGIN,
  'Access-Control-Request-Method': 'POST',
  'Access-Control-Request-Headers': 'authorization,content-type',
};

for (const name of ['cors', 'express-middleware', 'fastify-plugins'])
  t.test(`${name}: a page of another origin can send plants and read answers`, async (t) => {
    const { port } = await startApplication(t, name);
    const target = APPLICATIONS[name] ?? '/plants';
    const preflight = message({ method: 'OPTIONS', target, headers: PREFLIGHT, body: '' });
    t.match(await exchange(t, port, preflight, anyAnswer), {
      status: 204,
      headers: {
        'access-control-allow-origin': ORIGIN,
        'access-control-allow-methods': /\bPOST\b/,
        'access-control-allow-headers': 'authorization,content-type',
      },
    });
    for (const headers of [{}, { Authorization: 'Bearer wrong' }]) {
      const request = message({ target, headers: { Origin: ORIGIN, ...headers } });
      t.match(await exchange(t, port, request), { headers: READABLE });
    }
  });

t.test('fastify-plugins: plants are limited, and a page can read the 429 of Fastify', async (t) => {
  const { port } = await startApplication(t, 'fastify-plugins');
  for (let n = 0; n < 100; n++) t.equal((await exchange(t, port, message())).status, 200);
  const limited = { status: 429, body: '"statusCode":429', headers: READABLE };
  const request = message({ headers: { Origin: ORIGIN } });
  t.match(await exchange(t, port, request, anyAnswer), limited);
});

t.test('fastify-plugins: the document of the application has all our answers', async (t) => {
  const { port } = await startApplication(t, 'fastify-plugins');
  const response = await fetch(`http://127.0.0.1:${port}/openapi.json`);
  const document = (await response.json()) as typeof openapi;
  const { '/plants': plants, ...others } = document.paths;
  t.strictSame(plants.post, { ...openapi.paths['/plants'].post, security: openapi.security });
  t.strictSame(document.components, openapi.components);
  t.strictSame(Object.keys(others), ['/openapi.json']);
  t.notOk(document.security, 'other routes need no token of ours');
});

const HEADERS: Readonly<Record<string, string>> = {
  host: 'localhost',
  authorization: `Bearer ${TOKEN}`,
  'content-type': 'application/json',
};
/** A request that has not come over a connection. It lacks some of what those of node:http have. */
const INJECTED = { method: 'POST', url: '/plants', headers: HEADERS, body: FERN };

type Inject = (handler: PlantHandler, sent: typeof INJECTED) => Promise<string>;

/** How tools for tests create a request and a response. Each resolves to the body of the answer. */
const TOOLS: Readonly<Record<string, Inject>> = {
  async 'inject of Fastify'(handler, { body, ...head }) {
    const app = fastify();
    app.addHook('onRequest', ({ raw }, reply) => void handler(raw, reply.raw));
    return (await app.inject({ ...head, payload: body } as InjectOptions)).body;
  },
  async 'objects that are no streams, as those of node-mocks-http'(handler, sent) {
    let body = '';
    const res = {
      writableEnded: false,
      getHeader: () => undefined,
      setHeader: () => undefined,
      writeHead: () => undefined,
      write: (text: string) => (body += text),
      end: () => (res.writableEnded = true),
    };
    await handler({ ...sent, socket: {} } as object as HttpRequest, res as object as HttpResponse);
    return res.writableEnded ? body : 'the response is not ended';
  },
};

const created = storeOf(async () => 'created');

for (const [tool, inject] of Object.entries(TOOLS))
  t.test(`the handler answers ${tool}`, async (t) => {
    const report = (message: string) => t.fail(message);
    const options = { store: created, tokens: [TOKEN], report, maxBodyBytes: 100 };
    const handler = createPlantHandler(options);
    const rows: readonly [error: number | undefined, parts: Partial<typeof INJECTED>][] = [
      [undefined, {}],
      [401, { headers: { host: 'localhost' } }],
      [413, { body: FERN.padEnd(101) }],
      [422, { body: '{}' }],
      [undefined, { headers: { ...HEADERS, upgrade: 'h2c' } }],
    ];
    for (const [expected, parts] of rows) {
      const body = await inject(handler, { ...INJECTED, ...parts });
      const { error } = JSON.parse(body) as { error?: number };
      t.equal(error, expected, body);
    }
    // Memory is released once a response is flushed.
    await isReleased({ handler });
  });

t.test('the promise resolves even if neither a response nor a socket works', async (t) => {
  const shown = t.capture(console, 'error', () => undefined);
  const handler = createPlantHandler({ store: created, tokens: [TOKEN] });
  const res: object = { getHeader: () => undefined };
  await handler({ ...INJECTED, socket: {} } as object as HttpRequest, res as HttpResponse);
  t.match(
    shown.args().map(String),
    exactly(/^plant-store: a request failed,/, /^plant-store: a response could not be sent,/),
    'reported to stderr by default',
  );
});

const IVY = message({ body: '{"id":1,"name":"ivy"}' });

for (const name of ['http', 'express', 'fastify-plugins'])
  t.test(`${name}: on SIGTERM, the request in flight is answered before the end`, async (t) => {
    const application = await startApplication(t, name);
    const client = await connect(t, application.port);
    const [head = '', body = ''] = IVY.toString().split('\r\n\r\n');
    client.send(`${head}\r\nExpect: 100-continue\r\n\r\n`);
    t.equal((await client.answer()).status, 100, 'it has arrived');
    application.send('SIGTERM');
    await refusesConnections(t, application.port);
    client.send(body);
    t.match(await client.answer(), { status: 200 });
    client.socket.destroy();
    t.strictSame(await application.ended, DONE);
    t.match(readFileSync(logOf(application), 'utf8'), /^\{"id":1,.*\n$/);
    t.strictSame(readdirSync(join(application.cwd, 'data')), ['plants.jsonl'], 'no lock is left');
  });

t.test('http: when the log is poisoned, the exit code is 1', async (t) => {
  const application = await startApplication(t, 'http');
  appendFileSync(logOf(application), 'by another program\n');
  const client = await connect(t, application.port);
  client.send(IVY);
  t.match(await client.answer(), { status: 503 });
  client.socket.destroy();
  t.strictSame(await application.ended, { code: 1, signal: null });
  t.equal(readFileSync(logOf(application), 'utf8'), 'by another program\n');
});
