import { AsyncLocalStorage } from 'node:async_hooks';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { createServer, Server } from 'node:http';
import * as http2 from 'node:http2';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';

import t, { type Test } from 'tap';

import {
  createPlantHandler,
  type CommitMessage,
  type NewPlant,
  type PlantStore,
  type ResponseMessage,
} from '../dist/index.js';
import { openLog } from '../dist/log/log.js';
import { createListener } from '../dist/program/listener.js';
import { anyAnswer, CHUNKED, connect, exchange, message, TOKEN } from './client.js';
import { http2Answer, http2Post, http2Session } from './http2.js';
import { createGate, faultyFileSystem, plantsNamed, untilAvailable } from './log/support.js';
import { LISTENER, listen, serve } from './service.js';
import { gatedStore, storeOf } from './stores.js';
import { start } from './system/program.js';
import { exactly } from './exactly.js';

/** The request whose asynchronous context is current. */
const contexts = new AsyncLocalStorage<unknown>();

interface Observed<M> {
  readonly message: M;
  readonly context: unknown;
}

/** Observes a channel until the test is over. */
function observe<M>(t: Test, name: string): Observed<M>[] {
  const seen: Observed<M>[] = [];
  const subscriber = (message: unknown): void => {
    seen.push({ message: message as M, context: contexts.getStore() });
  };
  subscribe(name, subscriber);
  t.teardown(() => unsubscribe(name, subscriber));
  return seen;
}

const observeResponses = (t: Test) => observe<ResponseMessage>(t, 'plant-store:response');
const observeCommits = (t: Test) => observe<CommitMessage>(t, 'plant-store:commit');

/** What was published: status and error. */
const outcomes = (seen: readonly Observed<ResponseMessage>[]): number[][] =>
  seen.map(({ message: { status, error } }) => [status, error]);

/** A server that calls the handler in a context for each request, which is the request itself. */
function contextualServer(store: PlantStore): Server {
  const handler = createPlantHandler({ store, tokens: [TOKEN], report: () => undefined });
  return createServer((req, res) =>
    contexts.run(req, () => handler(req, res, req.url === '/next' ? () => res.end() : undefined)),
  );
}

const storesAll = storeOf(async ({ id }) => {
  await nextTurn();
  if (id === 0n) throw new Error('a fault');
  return 'created';
});

t.test('each answer is published once, in the asynchronous context of its request', async (t) => {
  const seen = observeResponses(t);
  const port = await listen(t, contextualServer(storesAll));
  const client = await connect(t, port, anyAnswer);
  const requests = [
    message(),
    message({ headers: { Authorization: undefined } }),
    message({ target: '/next' }),
    message({ target: '/elsewhere' }),
    message({ body: '{}' }),
    message({ body: '{"id":0,"name":"ivy"}' }),
    message(),
  ];
  for (const request of requests) {
    client.send(request.subarray(0, 20));
    await nextTurn();
    client.send(request.subarray(20));
    await client.answer();
  }
  t.strictSame(outcomes(seen), [
    [200, 0],
    [401, 401],
    [404, 404],
    [400, 422],
    [500, 500],
    [200, 0],
  ]);
  for (const { message, context } of seen) {
    t.strictSame(Object.keys(message), ['request', 'response', 'status', 'error']);
    t.ok(message.request && message.request === context, 'the context of the request');
    t.equal((message.response as { req: unknown }).req, message.request);
  }
});

t.test('an answer is published before it is sent', async (t) => {
  const { port, log } = await serve(t);
  const sizes: unknown[] = [];
  const subscriber = (message: unknown): void => {
    const { response } = message as ResponseMessage;
    sizes.push([response?.headersSent, (response?.socket as Socket).bytesWritten, log.size]);
  };
  subscribe('plant-store:response', subscriber);
  t.teardown(() => unsubscribe('plant-store:response', subscriber));
  await exchange(t, port, message());
  t.strictSame(sizes, [[true, 0, 1]]);
});

t.test('an answer in HTTP/2 is published', async (t) => {
  const seen = observeResponses(t);
  const handler = createPlantHandler({ store: storesAll, tokens: [TOKEN] });
  const server = http2.createServer((req, res) => contexts.run(req, () => handler(req, res)));
  const session = http2Session(t, await listen(t, server));
  await http2Answer(http2Post(session).end('{"id":7,"name":"ivy"}'));
  await http2Answer(http2Post(session, { ':method': 'HEAD' }), 'HEAD');
  t.strictSame(outcomes(seen), [
    [200, 0],
    [405, 405],
  ]);
  for (const { message, context } of seen) t.equal(message.request, context);
});

t.test('an answer is not published if', async (t) => {
  await t.test('the client has closed the connection before', async (t) => {
    const seen = observeResponses(t);
    const store = gatedStore();
    const server = contextualServer(store);
    const port = await listen(t, server);
    const closed = once(server, 'connection').then(([socket]) => once(socket as Socket, 'close'));
    const client = await connect(t, port);
    client.send(message(), message());
    await store.arrived(2);
    client.socket.destroy();
    await closed;
    store.letGo();
    await nextTurn();
    t.strictSame(seen, []);
  });

  await t.test('the application has destroyed the response while it is queued', async (t) => {
    const seen = observeResponses(t);
    const store = gatedStore();
    const handler = createPlantHandler({ store, tokens: [TOKEN] });
    const server = createServer((req, res) => {
      void handler(req, res);
      if (req.headers['x-application'] === 'destroys') res.destroy();
    });
    const client = await connect(t, await listen(t, server));
    const destroyed = message({ headers: { 'X-Application': 'destroys' }, body: '{}' });
    client.send(message(), destroyed);
    await store.arrived(1);
    store.letGo();
    await client.closed;
    t.strictSame(outcomes(seen), [[200, 0]]);
  });

  await t.test('the application has begun the response, or has changed it', async (t) => {
    const seen = observeResponses(t);
    const handler = createPlantHandler({ store: storesAll, tokens: [TOKEN], report: () => 0 });
    const server = createServer((req, res) => {
      if (req.headers['x-application'] === 'begins') res.writeHead(200);
      else
        res.writeHead = () => {
          throw new Error('changed');
        };
      void handler(req, res);
    });
    const port = await listen(t, server);
    for (const does of ['begins', 'changes']) {
      const client = await connect(t, port);
      client.send(message({ headers: { 'X-Application': does } }));
      await client.closed;
    }
    t.strictSame(seen, []);
  });
});

/** The listener of the program. */
async function startListener(t: Test, store: PlantStore) {
  const handler = createPlantHandler({ store, tokens: [TOKEN] });
  const listener = createListener({ handler, ...LISTENER });
  t.teardown(() => listener.stop(0));
  const { port } = new URL(await listener.listen('127.0.0.1', 0));
  return { listener, port: Number(port) };
}

t.test('answers of the listener itself are published without request and response', async (t) => {
  const seen = observeResponses(t);
  const { port } = await startListener(t, storesAll);
  const requests = [
    [message(), 'this is not HTTP\r\n\r\n'],
    ['CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n'],
    [message({ headers: { 'X-Long': 'x'.repeat(20_000) } })],
  ];
  for (const request of requests) {
    const client = await connect(t, port);
    client.send(...request);
    await client.closed;
  }
  t.match(seen.shift(), { message: { status: 200, error: 0 } });
  t.strictSame(
    seen.map(({ message }) => message),
    [
      { status: 400, error: 400 },
      { status: 405, error: 405 },
      { status: 431, error: 431 },
    ],
  );
});

t.test('a 503 because the program stops is published once, with its request', async (t) => {
  const seen = observeResponses(t);
  const store = gatedStore();
  const { listener, port } = await startListener(t, store);
  const client = await connect(t, port);
  client.send(message());
  await store.arrived(1);
  const stopped = listener.stop(1);
  t.match(await client.answer(), { status: 503 });
  store.letGo();
  await stopped;
  t.match(seen, exactly({ message: { status: 503, error: 503 } }));
  t.equal(seen[0]?.message.request?.method, 'POST');
});

t.test(
  'a request that turns out to be malformed while the program stops is answered once',
  async (t) => {
    const seen = observeResponses(t);
    const { listener, port } = await startListener(t, storesAll);
    const client = await connect(t, port);
    client.send(message({ headers: CHUNKED, body: 'not a chunk\r\n' }));
    t.match(await client.answer(), { status: 400 });
    await listener.stop(1);
    t.strictSame(outcomes(seen), [[400, 400]]);
  },
);

const [FERN, IVY, MOSS] = plantsNamed('fern', 'ivy', 'moss') as [NewPlant, NewPlant, NewPlant];

t.test('each batch of the log is published, in the context that opened the log', async (t) => {
  const seen = observeCommits(t);
  const gate = createGate();
  const fs = faultyFileSystem({ 'write 1': { hangs: gate } });
  const path = join(t.testdir(), 'plants.jsonl');
  const log = await contexts.run('open', () => openLog(fs, path));
  t.teardown(() => log.close());
  const add = (plant: NewPlant) => contexts.run('add', () => log.add(plant));
  const first = add(FERN);
  await gate.reached;
  t.strictSame(seen, [], 'not before it is durable');
  const others = [add(IVY), add(MOSS), add(FERN)];
  gate.open();
  await Promise.all([first, ...others]);
  await add(IVY);
  const line = Buffer.byteLength('{"id":1,"name":"fern","crc32":1234567890}\n');
  t.match(
    seen,
    exactly(
      { context: 'open', message: { store: log.path, plants: 1, bytes: Number } },
      { context: 'open', message: { store: log.path, plants: 2, bytes: Number } },
    ),
    'a plant that is stored already is in no batch',
  );
  for (const { message } of seen) {
    t.ok((message.bytes ?? 0) > message.plants * (line - 10), 'bytes');
    t.ok(message.durationMs >= 0);
    t.notOk('error' in message);
  }
});

t.test('a batch of the log that hangs is published once its outcome is known', async (t) => {
  const seen = observeCommits(t);
  const gate = createGate();
  const fs = faultyFileSystem({ 'write 1': { hangs: gate } });
  const log = await openLog(fs, join(t.testdir(), 'plants.jsonl'), { report: () => undefined });
  t.teardown(() => log.close());
  const refused = [t.rejects(log.add(FERN), { code: 'unavailable' })];
  await gate.reached;
  refused.push(t.rejects(log.add(IVY), { code: 'unavailable' }));
  await fs.expire();
  await Promise.all(refused);
  t.strictSame(seen, []);
  gate.open();
  await untilAvailable(log);
  t.match(seen, exactly({ message: { plants: 1, bytes: log.bytes } }), 'it was stored');
  t.notOk('error' in (seen[0]?.message ?? {}));
});

t.test('a batch of the log that fails is published with its error', async (t) => {
  const seen = observeCommits(t);
  const fs = faultyFileSystem({ 'write 1': { fails: 'ENOSPC' }, 'write 2': { fails: 'EIO' } });
  const log = await openLog(fs, join(t.testdir(), 'plants.jsonl'), { report: () => undefined });
  t.teardown(() => log.close());
  const errors: unknown[] = [];
  for (const plant of [FERN, IVY])
    await log.add(plant).catch((error: unknown) => errors.push(error));
  t.equal(errors.length, 2);
  t.strictSame(
    seen.map(({ message: { plants, bytes, error } }) => ({ plants, bytes, error })),
    errors.map((error) => ({ plants: 0, bytes: 0, error })),
  );
});

/** Subscribers that throw. */
const THROWING = `
import { subscribe } from 'node:diagnostics_channel';
for (const name of ['response', 'commit'])
  subscribe('plant-store:' + name, () => { throw new Error(name + ' subscriber'); });`;

t.test('a subscriber that throws changes no answer and no commit', async (t) => {
  const preload = `${THROWING}
process.on('uncaughtException', ({ message }) => console.error('uncaught:', message));`;
  const program = await start(t, { cwd: t.testdir(), preload });
  const headers = { Authorization: `Bearer ${program.token}` };
  for (let id = 1; id <= 3; id++) {
    const request = message({ headers, body: `{"id":${id},"name":"ivy"}` });
    t.equal((await exchange(t, program.port, request)).status, 200);
  }
  t.match(await exchange(t, program.port, Buffer.from('malformed\r\n\r\n')), { status: 400 });
  t.strictSame(await program.stop('SIGTERM'), { code: 0, signal: null });
  const count = (name: string): number => program.stderr.split(`uncaught: ${name}`).length - 1;
  t.equal(count('response subscriber'), 4);
  t.equal(count('commit subscriber'), 3);
});
