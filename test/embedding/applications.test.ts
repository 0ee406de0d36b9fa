import { appendFileSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

import fastify, { type InjectOptions } from 'fastify';
import t, { type Test } from 'tap';

import {
  createPlantHandler,
  NewPlantSchema,
  PlantSchema,
  type HttpRequest,
  type HttpResponse,
  type PlantHandler,
} from '../../dist/index.js';
import { connect, FERN, message, refusesConnections } from '../client.js';
import { conforms, type Received } from '../conformance.js';
import { exactly } from '../exactly.js';
import { writeExample } from '../example.js';
import { isReleased } from '../service.js';
import { storeOf } from '../stores.js';
import { DONE, launch, type Process } from '../system/program.js';
import { send, startApplication, type Parts, type Protocol } from './application.js';
import { EMBEDDINGS, TOKEN } from './embeddings.js';

/** A way in which the documents put the handler into a server. */
interface Embedding {
  readonly lines: string;
  readonly protocols?: readonly Protocol[];
  /** Where plants are created. */
  readonly path?: string;
  /** Whether the body has been parsed before it comes to the handler. */
  readonly parsed?: boolean;
  /** The answer at a path that is not ours. Default: that of a framework. */
  readonly elsewhere?: RegExp;
}

const OURS = /^{"error":404,/;
const BY_FRAMEWORK = /Cannot POST \/elsewhere|POST:\/elsewhere not found|^(?:404 )?Not Found$/;

const { express, expressElsewhere, fastifyHook, fastifyPlugin, fastifyMiddie } = EMBEDDINGS;
const { connect: onConnect, koa, koaAfterParser, hono, honoMiddleware } = EMBEDDINGS;
const { http, https, http2 } = EMBEDDINGS;

const APPLICATIONS: Readonly<Record<string, Embedding>> = {
  'node:http': { lines: http, elsewhere: OURS },
  'node:https': { lines: https, protocols: ['HTTP/1.1 over TLS'], elsewhere: OURS },
  'node:http2': { lines: http2, protocols: ['HTTP/2', 'HTTP/1.1 over TLS'], elsewhere: OURS },
  Express: { lines: express },
  'Express, under a prefix': { lines: expressElsewhere, path: '/garden/plants' },
  'Express, after its parser': { lines: expressElsewhere, path: '/parsed/plants', parsed: true },
  Connect: { lines: onConnect },
  'Fastify, as a hook': { lines: fastifyHook },
  'Fastify, in a plugin': { lines: fastifyPlugin },
  'Fastify, with middie': { lines: fastifyMiddie },
  'Fastify, with middie, under a prefix': { lines: fastifyMiddie, path: '/garden/plants' },
  'Fastify, with swagger': { lines: EMBEDDINGS.fastifySwagger },
  Hono: { lines: hono },
  'Hono, whose middleware does not see plants': { lines: honoMiddleware, elsewhere: /middleware$/ },
  Koa: { lines: koa },
  'Koa, after its parser': { lines: koaAfterParser, parsed: true },
};

for (const [name, embedding] of Object.entries(APPLICATIONS))
  t.test(`in ${name}, the handler works`, async (t) => {
    const { path = '/plants', parsed = false, elsewhere = BY_FRAMEWORK } = embedding;
    const invalid = { status: 400, body: '{"error":422,' };
    const rows: readonly [parts: Parts, expected: object][] = [
      [{ body: '{"id":7,"name":"ivy"}' }, { status: 200, body: '{"name":"ivy"}' }],
      [{ token: 'wrong' }, { status: 401, body: '{"error":401,' }],
      [{ body: '{"id":8,"name":null}' }, invalid],
      // A body parser has rounded it.
      [{ body: '{"id":9007199254740993,"name":"ivy"}' }, parsed ? invalid : { status: 200 }],
      [
        { body: '{"id":9007199254740993,"name":5}' },
        { body: parsed ? /id: may have been .*; name: must/ : /"name: must/ },
      ],
      [{ path: '/elsewhere' }, { body: elsewhere }],
    ];
    const application = await startApplication(t, embedding.lines);
    for (const protocol of embedding.protocols ?? ['HTTP/1.1']) {
      const answers: Received[] = [];
      for (const [parts] of rows)
        answers.push(await send(application, { path, ...parts }, protocol));
      t.match(answers, exactly(...rows.map(([, expected]) => expected)), protocol);
      for (const answer of answers.slice(0, -1)) conforms(answer);
    }
    const stored = readFileSync('data/plants.jsonl', 'utf8').match(/(?<=^\{"id":)\d+/gm);
    t.strictSame(stored, ['7', ...(parsed ? [] : ['9007199254740993'])]);
  });

/** What the document says of some applications, shown by one request. */
const SENTENCES: Readonly<Record<string, readonly [lines: string, parts: Parts, answer: object]>> =
  {
    'the hook of a Fastify plugin without a route is not reached': [
      EMBEDDINGS.fastifyPluginWithoutRoute,
      {},
      { status: 404, body: /Route POST:\/plants not found/ },
    ],
    'the prefix of a Fastify plugin is not stripped': [
      EMBEDDINGS.fastifyPluginWithPrefix,
      { path: '/garden/plants' },
      { status: 500, body: /the hook has passed it on/ },
    ],
    'an application with its own authentication sets the token itself': [
      EMBEDDINGS.ownAuthentication,
      { token: 'a-token-of-another-kind' },
      { status: 200 },
    ],
  };

for (const [sentence, [lines, parts, answer]] of Object.entries(SENTENCES))
  t.test(sentence, async (t) => {
    t.match(await send(await startApplication(t, lines), parts), answer);
  });

t.test('@fastify/rate-limit counts plants only with the documented hook', async (t) => {
  const { fastifyLimit, fastifyLimitOfRoutes } = EMBEDDINGS;
  const statuses: number[] = [];
  for (const lines of [fastifyLimit, fastifyLimitOfRoutes]) {
    const application = await startApplication(t, lines);
    for (let n = 0; n < 5; n++) statuses.push((await send(application, {})).status);
  }
  t.strictSame(statuses, [200, 200, 200, 429, 429, 200, 200, 200, 200, 200]);
});

t.test('@fastify/swagger describes the operation', async (t) => {
  const { port } = await startApplication(t, EMBEDDINGS.fastifySwagger);
  const response = await fetch(`http://localhost:${port}/openapi.json`);
  const document = (await response.json()) as Record<string, object>;
  const content = (schema: object) => ({ content: { 'application/json': { schema } } });
  const post = { requestBody: content(NewPlantSchema), responses: { 200: content(PlantSchema) } };
  t.match(document.paths, { '/plants': { post } });
});

const { expressCors, fastifyCors, honoCors } = EMBEDDINGS;
const WITH_CORS = { Express: expressCors, Fastify: fastifyCors, Hono: honoCors };

for (const [framework, lines] of Object.entries(WITH_CORS))
  t.test(`${framework}: a page of another origin can send plants and read answers`, async (t) => {
    const application = await startApplication(t, lines);
    const origin = 'https://garden.example';
    const preflight = {
      origin,
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'authorization,content-type',
    };
    t.match(await send(application, { method: 'OPTIONS', headers: preflight, body: '' }), {
      status: 204,
      headers: {
        'access-control-allow-origin': origin,
        'access-control-allow-methods': /\bPOST\b/,
        'access-control-allow-headers': 'authorization,content-type',
      },
    });
    const requests = { 200: {}, 401: { token: 'wrong' }, 404: { path: '/elsewhere' } };
    for (const [status, parts] of Object.entries(requests))
      t.match(await send(application, { ...parts, headers: { origin } }), {
        status: Number(status),
        headers: { 'access-control-allow-origin': origin },
      });
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
      [404, { url: '/elsewhere' }],
      [405, { method: 'GET' }],
      [415, { headers: { ...HEADERS, 'content-type': 'text/plain' } }],
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

/** Starts the documented server, in a process of its own. */
async function launchServer(t: Test): Promise<Process & { port: number; log: string }> {
  const lines = `${EMBEDDINGS.http.replace('8080', '0')}
server.on('listening', () => console.log(server.address().port));`;
  const { folder, path } = writeExample(t, lines);
  const program = launch(t, { cwd: folder, script: path });
  const [port] = await program.says('stdout', /\d+(?=\n)/);
  return Object.assign(program, { port: Number(port), log: join(folder, 'data/plants.jsonl') });
}

const IVY = message({
  headers: { Authorization: `Bearer ${TOKEN}` },
  body: '{"id":1,"name":"ivy"}',
});

t.test('on SIGTERM, the request in flight is answered, and the exit code is 0', async (t) => {
  const program = await launchServer(t);
  const client = await connect(t, program.port);
  const [head = '', body = ''] = IVY.toString().split('\r\n\r\n');
  client.send(`${head}\r\nExpect: 100-continue\r\n\r\n`);
  t.equal((await client.answer()).status, 100, 'it has arrived');
  program.send('SIGTERM');
  await refusesConnections(t, program.port);
  client.send(body);
  t.match(await client.answer(), { status: 200 });
  client.socket.destroy();
  t.strictSame(await program.ended, DONE);
  t.match(readFileSync(program.log, 'utf8'), /^\{"id":1,.*\n$/);
  t.strictSame(readdirSync(dirname(program.log)), ['plants.jsonl'], 'the lock is released');
});

t.test('when the log is poisoned, the exit code is 1', async (t) => {
  const program = await launchServer(t);
  appendFileSync(program.log, 'by another program\n');
  const client = await connect(t, program.port);
  client.send(IVY);
  t.match(await client.answer(), { status: 503 });
  client.socket.destroy();
  t.strictSame(await program.ended, { code: 1, signal: null });
  t.equal(readFileSync(program.log, 'utf8'), 'by another program\n');
});
