import { appendFileSync, readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import fastify, { type InjectOptions } from 'fastify';
import t from 'tap';

import { openapi } from '../../dist/index.js';
import {
  anyAnswer,
  connect,
  exchange,
  message,
  untilRefused,
  type Answer,
  type Message,
} from '../helpers/client.js';
import { FERN, FERN_JSON } from '../helpers/plants.js';
import { changeTimers, DONE } from '../helpers/program.js';
import { startApplication, startApplicationHere, type Application } from './application.js';
import { expectAnswers } from './injected.js';

const logPathOf = ({ cwd }: Application): string => join(cwd, 'data/plants.jsonl');

const WITH_FASTIFY = /POST:\/elsewhere not found/;
const WITH_EXPRESS = /Cannot POST \/elsewhere/;

/**
 * Programs of `test/embedding/examples/`, each with the target of plants and the answer to another
 * path.
 */
const APPLICATIONS: Readonly<Record<string, readonly [target: string, elsewhere: RegExp]>> = {
  http: ['/plants', /"error":404,/],
  cors: ['/plants', /"error":404,/],
  'express-middleware': ['/garden/plants', WITH_EXPRESS],
  fastify: ['/plants', WITH_FASTIFY],
  'fastify-plugins': ['/plants', WITH_FASTIFY],
  'fastify-middie': ['/garden/plants', WITH_FASTIFY],
  get: ['/plants', WITH_EXPRESS],
  hono: ['/plants', /^404 Not Found$/],
  koa: ['/plants', /^Not Found$/],
  'koa-parser': ['/plants', /^Not Found$/],
};

process.chdir(t.testdir());
const PORTS: Record<string, number> = {};
for (const name of Object.keys(APPLICATIONS)) PORTS[name] = await startApplicationHere(t, name);

/** Sends a request to an application, and accepts any answer. */
function send(name: string, parts: Message): Promise<Answer> {
  const [target = ''] = APPLICATIONS[name] ?? [];
  return exchange(t, PORTS[name] ?? 0, message({ target, ...parts }), anyAnswer);
}

let id = 2n ** 53n;
for (const [name, [, elsewhere]] of Object.entries(APPLICATIONS))
  t.test(`${name}: plants get exact answers, other paths the application's`, async (t) => {
    id++;
    const rows: readonly [parts: Message, expected: object][] = [
      [{ body: `{"id":${id},"name":"Löwenmaul"}` }, { status: 200, body: '{"name":"Löwenmaul"}' }],
      [{ headers: { Authorization: 'Bearer wrong' } }, { status: 401 }],
      [{ body: '{"id":8,"name":null}' }, { status: 400, body: '{"error":422,' }],
      [{ target: '/elsewhere' }, { body: elsewhere }],
    ];
    for (const [parts, expected] of rows) t.match(await send(name, parts), expected);
    t.match(readFileSync('data/plants.jsonl', 'utf8'), `{"id":${id},"name":"Löwenmaul",`);
  });

/**
 * The answers to a preflight of those applications that have a route for all methods of the path.
 */
const PREFLIGHTS = {
  'express-middleware': { status: 204 },
  'fastify-plugins': { status: 204 },
  'fastify-middie': { status: 200, body: 'application: OPTIONS' },
  hono: { status: 200, body: 'application: OPTIONS' },
  'koa-parser': { status: 200, body: 'application: OPTIONS' },
};

for (const [name, preflight] of Object.entries(PREFLIGHTS))
  t.test(`${name}: other methods of the path are the application's, without a token`, async (t) => {
    const headers = { Authorization: undefined, 'Content-Type': undefined };
    for (const method of ['GET', 'PUT', 'DELETE']) {
      const answer = await send(name, { method, headers, body: '' });
      t.match(answer, { status: 200, body: `application: ${method}` });
    }
    t.match(await send(name, { method: 'OPTIONS', headers, body: '' }), preflight);
  });

t.test('get: a plant is read by its exact id', async (t) => {
  const get = (id: unknown) =>
    send('get', { method: 'GET', target: `/plants/${String(id)}`, body: '' });
  for (const id of [2n ** 63n - 1n, -(2n ** 63n), 0n]) {
    const body = `{"id":${id},"name":"ivy","tag":"x"}`;
    t.match(await send('get', { body }), { status: 200 });
    t.match(await get(id), {
      status: 200,
      body,
      headers: { 'content-type': /^application\/json/ },
    });
  }
  for (const id of [2n ** 63n, -(2n ** 63n) - 1n, '7.0', '0x7', 'ivy', ' 7', '1e0', '9'.repeat(20)])
    t.match(await get(encodeURIComponent(String(id))), { status: 400, body: '"error":400' });
  t.match(await get(1234567), { status: 404, body: '"error":404' });
});

t.test('get: a store that fails is answered with 500 or 503, without its message', async (t) => {
  const application = await startApplication(t, 'get');
  const { port } = application;
  const log = logPathOf(application);
  t.match(await exchange(t, port, message({ body: FERN_JSON })), { status: 200 });
  const request = message({ method: 'GET', target: `/plants/${FERN.id}`, body: '' });
  const get = () => exchange(t, port, request, anyAnswer);
  const damaged = readFileSync(log, 'latin1').replace('"name":"', '"name": ');
  writeFileSync(log, damaged, 'latin1');
  t.match(await get(), { status: 500, body: '{"error":500,"message":"the plant cannot be read"}' });
  truncateSync(log);
  t.match(await get(), {
    status: 503,
    headers: { 'retry-after': '1' },
    body: '{"error":503,"message":"try again later"}',
  });
});

t.test('a client that the application has authenticated needs no token', async (t) => {
  for (const [Cookie, status] of [
    ['gardener=1', 200],
    ['gardener=0', 401],
  ] as const)
    t.match(await send('express-middleware', { headers: { Authorization: '', Cookie } }), {
      status,
    });
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
    t.match(await send(name, { method: 'OPTIONS', headers: PREFLIGHT, body: '' }), {
      status: 204,
      headers: {
        'access-control-allow-origin': ORIGIN,
        'access-control-allow-methods': /\bPOST\b/,
        'access-control-allow-headers': 'authorization,content-type',
      },
    });
    for (const headers of [{}, { Authorization: 'Bearer wrong' }])
      t.match(await send(name, { headers: { Origin: ORIGIN, ...headers } }), { headers: READABLE });
  });

t.test('fastify-plugins: the OpenAPI document has all answers of the handler', async (t) => {
  const { body } = await send('fastify-plugins', { method: 'GET', target: '/openapi.json' });
  const document = JSON.parse(body) as typeof openapi;
  const { '/plants': plants, ...others } = document.paths;
  t.strictSame(plants.post, { ...openapi.paths['/plants'].post, security: openapi.security });
  t.strictSame(document.components, openapi.components);
  t.strictSame(Object.keys(others), ['/openapi.json']);
  t.notOk(document.security, 'other routes need no token of ours');
});

t.test('fastify-plugins: only plants are rate-limited, and a page can read the 429', async (t) => {
  const get: Message = { method: 'GET', target: '/openapi.json' };
  for (let n = 0; n <= 100; n++) t.match(await send('fastify-plugins', get), { status: 200 });
  let answer;
  for (let n = 0; n <= 100; n++)
    answer = await send('fastify-plugins', { headers: { Origin: ORIGIN } });
  const headers = { ...READABLE, 'retry-after': /^\d+$/ };
  t.match(answer, { status: 429, headers });
  t.strictSame(Object.keys(JSON.parse(answer?.body ?? '') as object), ['error', 'message']);
  t.match(await send('fastify-plugins', { target: '/plants?a=b' }), { status: 429 });
  t.match(await send('fastify-plugins', get), { status: 200 });
});

t.test('the handler answers requests that inject of Fastify creates', async (t) => {
  await expectAnswers(t, async (handler, { body, ...head }) => {
    const app = fastify();
    app.addHook('onRequest', ({ raw }, reply) => void handler(raw, reply.raw));
    return (await app.inject({ ...head, payload: body } as InjectOptions)).body;
  });
});

for (const name of ['http', 'express', 'fastify'])
  t.test(`${name}: on SIGTERM, the request in flight is answered before the end`, async (t) => {
    const application = await startApplication(t, name);
    const client = await connect(t, application.port);
    const request = message({ headers: { Expect: '100-continue' } });
    client.send(request.subarray(0, -Buffer.byteLength(FERN_JSON)));
    t.equal((await client.answer()).status, 100, 'it has arrived');
    application.send('SIGTERM');
    await untilRefused(t, application.port);
    client.send(FERN_JSON);
    const printed = () => application.ended.then(() => application.stderr);
    t.match(await client.answer().catch(printed), { status: 200 });
    client.socket.destroy();
    t.strictSame(await application.ended, DONE, application.stderr);
    t.match(readFileSync(logPathOf(application), 'utf8'), /^\{"id":7,.*\n$/);
    t.strictSame(readdirSync(join(application.cwd, 'data')), ['plants.jsonl'], 'no lock is left');
  });

t.test('http: a request that does not end delays the shutdown by 8 s only', async (t) => {
  const application = await startApplication(t, 'http', changeTimers('ms === 8_000 ? 0 : ms'));
  const client = await connect(t, application.port);
  client.send(message({ headers: { Expect: '100-continue' } }).subarray(0, -1));
  t.equal((await client.answer()).status, 100);
  application.send('SIGTERM');
  await t.rejects(client.answer(), { message: 'closed after 0 bytes of an answer' });
  t.strictSame(await application.ended, DONE);
});

t.test('http: when the log is poisoned, the exit code is 1', async (t) => {
  const application = await startApplication(t, 'http');
  appendFileSync(logPathOf(application), 'by another program\n');
  const client = await connect(t, application.port);
  client.send(message());
  t.match(await client.answer(), { status: 503 });
  client.socket.destroy();
  t.strictSame(await application.ended, { code: 1, signal: null });
  t.equal(readFileSync(logPathOf(application), 'utf8'), 'by another program\n');
});
