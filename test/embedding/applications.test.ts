import { readFileSync } from 'node:fs';

import t, { type Test } from 'tap';

import { conforms } from '../conformance.js';
import { EMBEDDINGS, TOKEN } from './embeddings.js';
import {
  send,
  startApplication,
  type Application,
  type Message,
  type Protocol,
} from './application.js';

/** A way in which the documents put the handler into a server. */
interface Embedding {
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
const BY_EXPRESS = /Cannot POST \/elsewhere/;
const BY_FASTIFY = /Route POST:\/elsewhere not found/;
const BY_KOA = /^Not Found$/;

const TLS: Protocol = 'HTTP/1.1 over TLS';

const { http, https, http2, otherRoutes, connect, hono, koa, koaAfterParser } = EMBEDDINGS;
const { express, expressElsewhere } = EMBEDDINGS;
const { fastifyHook, fastifyPlugin, fastifyMiddie, fastifySwagger } = EMBEDDINGS;

const APPLICATIONS: Readonly<Record<string, Embedding>> = {
  'node:http': { lines: http, elsewhere: OURS },
  'node:https': { lines: https, protocols: [TLS], elsewhere: OURS },
  'node:http2': { lines: http2, protocols: ['HTTP/2', TLS], elsewhere: OURS },
  'a server with other routes': { lines: otherRoutes, elsewhere: /^hello$/ },
  Express: { lines: express, elsewhere: BY_EXPRESS },
  'Express, under a prefix': {
    lines: expressElsewhere,
    path: '/garden/plants',
    elsewhere: BY_EXPRESS,
  },
  'Express, after express.json()': {
    lines: expressElsewhere,
    path: '/parsed/plants',
    parsed: true,
    elsewhere: BY_EXPRESS,
  },
  Connect: { lines: connect, elsewhere: BY_EXPRESS },
  'Fastify, as a hook': { lines: fastifyHook, elsewhere: BY_FASTIFY },
  'Fastify, in a plugin': { lines: fastifyPlugin, elsewhere: BY_FASTIFY },
  'Fastify, with middie': { lines: fastifyMiddie, elsewhere: BY_FASTIFY },
  'Fastify, with middie, under a prefix': {
    lines: fastifyMiddie,
    path: '/garden/plants',
    elsewhere: BY_FASTIFY,
  },
  'Fastify, with swagger': { lines: fastifySwagger, elsewhere: BY_FASTIFY },
  Hono: { lines: hono, elsewhere: /^404 Not Found$/ },
  Koa: { lines: koa, elsewhere: BY_KOA },
  'Koa, after its body parser': { lines: koaAfterParser, parsed: true, elsewhere: BY_KOA },
};

for (const [name, embedding] of Object.entries(APPLICATIONS))
  t.test(`in ${name}`, async (t) => {
    const application = await startApplication(t, embedding.lines);
    for (const protocol of embedding.protocols ?? ['HTTP/1.1'])
      await t.test(protocol, (t) => works(t, application, protocol, embedding));
  });

t.test('middleware of Hono does not see requests for plants', async (t) => {
  const application = await startApplication(t, EMBEDDINGS.honoMiddleware);
  const plant = { path: '/plants', token: TOKEN, body: '{"id":7,"name":"fern"}' };
  t.match(await send(application, 'HTTP/1.1', plant), { status: 200 });
  t.match(await send(application, 'HTTP/1.1', { ...plant, path: '/elsewhere' }), { status: 429 });
});

t.test('an application with its own authentication sets the token itself', async (t) => {
  const application = await startApplication(t, EMBEDDINGS.ownAuthentication);
  const plant = {
    path: '/plants',
    token: 'a-token-of-another-kind',
    body: '{"id":7,"name":"fern"}',
  };
  t.match(await send(application, 'HTTP/1.1', plant), { status: 200 });
});

async function works(
  t: Test,
  application: Application,
  protocol: Protocol,
  { path = '/plants', parsed = false, elsewhere }: Embedding,
): Promise<void> {
  const plant = { path, token: TOKEN, body: '{"id":7,"name":"Boston fern"}' };
  const big = '{"id":9007199254740993,"name":"Ivy"}';
  const invalid = { status: 400, body: '{"error":422,' };
  const twoFaults = { ...plant, body: '{"id":9007199254740993,"name":5}' };
  const rows: readonly [about: string, message: Message, expected: object][] = [
    ['a plant is stored', plant, { status: 200, body: '{"name":"Boston fern"}' }],
    ['a wrong token', { ...plant, token: 'wrong' }, { status: 401, body: '{"error":401,' }],
    ['JSON that is not a plant', { ...plant, body: '{"id":8,"name":null}' }, invalid],
    // A body parser has rounded it.
    ['an id beyond 2^53', { ...plant, body: big }, parsed ? invalid : { status: 200 }],
    [
      'every fault',
      twoFaults,
      { body: parsed ? /id: may have been .*; name: must/ : /"name: must/ },
    ],
  ];
  for (const [about, message, expected] of rows) {
    const answer = await send(application, protocol, message);
    conforms(answer);
    t.match(answer, expected, about);
  }
  const other = await send(application, protocol, { ...plant, path: '/elsewhere' });
  t.match(other.body, elsewhere, 'another path is answered by the application');

  const stored = readFileSync('data/plants.jsonl', 'utf8').match(/(?<=^\{"id":)\d+/gm);
  t.strictSame(stored, ['7', ...(parsed ? [] : ['9007199254740993'])]);
}
