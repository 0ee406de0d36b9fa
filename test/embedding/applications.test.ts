import { readFileSync } from 'node:fs';

import t, { type Test } from 'tap';

import { conforms } from '../conformance.js';
import { EMBEDDINGS, HANDLER } from './embeddings.js';
import { hangUp, send, startApplication, type Application, type Protocol } from './application.js';

// Otherwise Express and Koa write about a client that hangs up.
process.env.NODE_ENV = 'test';

const TOKEN = 'a-secret-token';

/** A way in which the README puts the handler into a server. */
interface Embedding {
  readonly name: string;
  readonly lines: string;
  readonly protocols?: readonly Protocol[];
  /** Where plants are created. */
  readonly path?: string;
  /** Whether the body has been parsed before it comes to the handler. */
  readonly parsed?: boolean;
  /** What the answer is at a path that is not ours. */
  readonly elsewhere: RegExp;
}

const OURS = /^{"error":404,/;
const BY_EXPRESS = { lines: EMBEDDINGS.express, elsewhere: /Cannot POST \/elsewhere/ };
const BY_FASTIFY = /Route POST:\/elsewhere not found/;
const BY_KOA = /^Not Found$/;

const APPLICATIONS: readonly Embedding[] = [
  { name: 'node:http', lines: EMBEDDINGS.http, elsewhere: OURS },
  {
    name: 'node:https',
    lines: EMBEDDINGS.https,
    protocols: ['HTTP/1.1 over TLS'],
    elsewhere: OURS,
  },
  {
    name: 'node:http2',
    lines: EMBEDDINGS.http2,
    protocols: ['HTTP/2', 'HTTP/1.1 over TLS'],
    elsewhere: OURS,
  },
  { name: 'a server with other routes', lines: EMBEDDINGS.otherRoutes, elsewhere: /^hello$/ },
  { name: 'Express', ...BY_EXPRESS },
  { name: 'Express, under a prefix', ...BY_EXPRESS, path: '/garden/plants' },
  { name: 'Express, after express.json()', ...BY_EXPRESS, path: '/parsed/plants', parsed: true },
  { name: 'Connect', lines: EMBEDDINGS.connect, elsewhere: BY_EXPRESS.elsewhere },
  { name: 'Fastify, as a hook', lines: EMBEDDINGS.fastifyHook, elsewhere: BY_FASTIFY },
  { name: 'Fastify, in a plugin', lines: EMBEDDINGS.fastifyPlugin, elsewhere: BY_FASTIFY },
  { name: 'Fastify, with middie', lines: EMBEDDINGS.fastifyMiddie, elsewhere: BY_FASTIFY },
  {
    name: 'Fastify, with middie, under a prefix',
    lines: EMBEDDINGS.fastifyMiddie,
    path: '/garden/plants',
    elsewhere: BY_FASTIFY,
  },
  { name: 'Fastify, with swagger', lines: EMBEDDINGS.fastifySwagger, elsewhere: BY_FASTIFY },
  {
    name: 'Fastify, as a route',
    lines: EMBEDDINGS.fastifyRoute,
    parsed: true,
    elsewhere: BY_FASTIFY,
  },
  { name: 'Hono', lines: EMBEDDINGS.hono, elsewhere: /^404 Not Found$/ },
  { name: 'Koa', lines: EMBEDDINGS.koa, elsewhere: BY_KOA },
  {
    name: 'Koa, after its body parser',
    lines: EMBEDDINGS.koaAfterParser,
    parsed: true,
    elsewhere: BY_KOA,
  },
];

for (const embedding of APPLICATIONS) {
  t.test(`in ${embedding.name}`, async (t) => {
    const application = await startApplication(t, `${HANDLER}\n${embedding.lines}`);
    for (const protocol of embedding.protocols ?? ['HTTP/1.1'])
      await t.test(protocol, (t) => works(t, application, protocol, embedding));
  });
}

async function works(
  t: Test,
  application: Application,
  protocol: Protocol,
  { path = '/plants', parsed = false, elsewhere }: Embedding,
): Promise<void> {
  const message = { path, token: TOKEN, body: '{"id":7,"name":"Boston fern"}' };

  await t.test('a plant is stored', async (t) => {
    const answer = await send(application, protocol, message);
    conforms(answer);
    t.match(answer, { status: 200, body: '{"name":"Boston fern"}' });
    t.match(storedPlants(), '{"id":7,"name":"Boston fern",');
  });

  await t.test('a wrong token is answered with 401', async (t) => {
    const answer = await send(application, protocol, { ...message, token: 'wrong' });
    conforms(answer);
    t.match(answer, { status: 401, body: '{"error":401,' });
  });

  await t.test('JSON that is not a plant is answered with error 422', async (t) => {
    const answer = await send(application, protocol, { ...message, body: '{"id":8,"name":null}' });
    conforms(answer);
    t.match(answer, { status: 400, body: '{"error":422,' });
  });

  const exactly = parsed ? 'refused' : 'stored exactly';
  await t.test(`an id beyond 2^53 is ${exactly}`, async (t) => {
    const body = '{"id":9007199254740993,"name":"Ivy"}';
    const answer = await send(application, protocol, { ...message, body });
    conforms(answer);
    t.match(answer, parsed ? { status: 400, body: '{"error":422,' } : { status: 200 });
    t.equal(storedPlants().includes('{"id":9007199254740993,'), !parsed);
    t.notMatch(storedPlants(), '{"id":9007199254740992,');
  });

  await t.test('a request for another path is answered by the application', async (t) => {
    const answer = await send(application, protocol, { ...message, path: '/elsewhere' });
    t.match(answer.body, elsewhere);
  });

  await t.test('nothing is stored for a client that disconnects within its body', async (t) => {
    const half = { ...message, body: '{"id":9,"name":"Half a plant"}' };
    await hangUp(application, protocol, half);
    const whole = { ...message, body: '{"id":9,"name":"Whole"}' };
    const answer = await send(application, protocol, whole);
    conforms(answer);
    t.match(answer, { status: 200 });
  });
}

function storedPlants(): string {
  return readFileSync('data/plants.jsonl', 'utf8');
}
