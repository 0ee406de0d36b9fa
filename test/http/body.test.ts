import { EventEmitter, once } from 'node:events';
import { createServer } from 'node:http';
import { Readable } from 'node:stream';

import t from 'tap';

import { readBody } from '../../dist/http/body.js';
import { Budget, type Reservation } from '../../dist/http/budget.js';
import { DEFAULT_LIMITS, DRAIN, MAX_REFUSED_BYTES } from '../../dist/http/limits.js';
import {
  chunk,
  CHUNKED,
  chunkedMessage,
  connect,
  untilEventOrClose,
  exchange,
  expectFailure,
  message,
  type Client,
} from '../helpers/client.js';
import { heldBytes } from '../helpers/memory.js';
import { FERN_JSON } from '../helpers/plants.js';
import { expireAtOnce, untilReleased, listen, serve } from '../helpers/service.js';
import { gatedStore, storeOf } from '../helpers/stores.js';
import { declaring, untilNextClose, plantOfSize } from './support.js';

/** FERN, with a chunk for each character. */
const TINY_CHUNKS = chunkedMessage(...Array.from(FERN_JSON));

t.test('the largest body is stored, one byte more refused, however it is split', async (t) => {
  const size = 10_000;
  const { port } = await serve(t, { maxBodyBytes: size, maxBufferedBytes: 8 * size });
  const body = plantOfSize(size);
  const client = await connect(t, port);
  const tooLarge = { status: 400, error: 413 };
  for (const at of [1, 3_000, 4_096, 4_999, 5_000, 5_001, 9_999]) {
    const chunks = [body.slice(0, at), body.slice(at)];
    client.send(chunkedMessage(...chunks));
    t.equal((await client.answer()).status, 200, `split at ${at}`);
    const answer = await exchange(t, port, chunkedMessage(...chunks, ' '));
    expectFailure(t, answer, tooLarge, `split at ${at}, one byte more`);
  }
  client.send(message({ body }), message({ body: `${body} ` }));
  t.equal((await client.answer()).status, 200, 'with a Content-Length');
  const answer = await client.answer();
  expectFailure(t, answer, tooLarge, 'with a Content-Length, one byte more');
  t.match(answer.body, `${size} bytes`, 'the message has the limit');
});

t.test('a body in chunks is refused once it does not fit into the memory', async (t) => {
  const size = 10_000;
  const store = gatedStore();
  const { port } = await serve(t, { store, maxBodyBytes: size, maxBufferedBytes: 8 * size });
  const body = plantOfSize(size);
  const first = await connect(t, port);
  first.send(message({ body }));
  await store.untilArrived(1);
  expectFailure(t, await exchange(t, port, chunkedMessage(body)), { status: 503 }, 'in chunks');
  store.letGo();
  t.equal((await first.answer()).status, 200);
});

t.test('a body that has arrived, but is decoded or larger than declared, is refused', async (t) => {
  const { handler } = await serve(t, { maxBodyBytes: 5, maxBufferedBytes: 40 });
  const server = createServer((req, res) => {
    req.headers['content-length'] = '5';
    if (req.headers['x-decoded'] !== undefined) req.setEncoding('utf8');
    void handler(req, res);
  });
  const port = await listen(t, server);
  expectFailure(t, await exchange(t, port, message()), { status: 400, error: 413 }, 'larger');
  const decoded = message({ headers: { 'X-Decoded': '' } });
  expectFailure(t, await exchange(t, port, decoded), { status: 500 }, 'decoded');
});

t.test('of a refused body, a bounded rest is read, so that a client gets the answer', async (t) => {
  t.intercept(DRAIN, 'maxBytes', { value: 1_000_000 });
  const { port, server } = await serve(t, { maxBodyBytes: 100 });
  const most = message({ body: Buffer.alloc(DRAIN.maxBytes, ' ') });
  const client = await connect(t, port);
  client.send(most, message());
  expectFailure(
    t,
    await client.answer(),
    { status: 400, error: 413 },
    'as large as can be drained',
  );
  t.equal((await client.answer()).status, 200, 'the connection can be used again');

  const endless = Buffer.alloc(5 * DRAIN.maxBytes, ' ');
  const requests = {
    'in chunks': message({ headers: CHUNKED, body: chunk(endless) }),
    declared: declaring(DRAIN.maxBytes + 1, endless),
  };
  for (const [about, request] of Object.entries(requests)) {
    const serverSide = untilNextClose(server);
    const client = await connect(t, port);
    client.send(request);
    const headers = { connection: 'close' };
    expectFailure(t, await client.answer(), { status: 400, error: 413, headers }, about);
    await client.closed;
    const { bytesRead } = await serverSide;
    t.ok(bytesRead > DRAIN.maxBytes, `${about}: not closed before the bound`);
    t.ok(bytesRead < DRAIN.maxBytes + 200_000, `${about}: closed soon after it`);
  }
});

t.test('a connection is kept after a refused body that has arrived in chunks', async (t) => {
  const { port } = await serve(t);
  const client = await connect(t, port);
  client.send(chunkedMessage('{}'));
  const kept = { status: 400, error: 422, headers: { connection: 'keep-alive' } };
  expectFailure(t, await client.answer(), kept, 'the body is no plant');
});

t.test('a client that stops within its body is answered after 30 s, closed after 35', async (t) => {
  expireAtOnce(t, 30_000);
  const drains = expireAtOnce(t, 5_000);
  const service = await serve(t, { maxBodyBytes: 100 });
  const late = { status: 408, headers: { connection: 'close' } };
  for (const [about, request, expected] of [
    ['it has not begun', declaring(10), late],
    ['only the last chunk is missing', message({ headers: CHUNKED, body: chunk(FERN_JSON) }), late],
    ['it is refused already', declaring(101, 'x'), { status: 400, error: 413 }],
  ] as const) {
    const client = await connect(t, service.port);
    client.send(request);
    expectFailure(t, await client.answer(), expected, about);
    await client.closed;
    await untilReleased(service);
  }
  t.equal(drains(), 3);
  t.equal(service.log.size, 0);
});

t.test('the read part of a refused body is released before the rest is drained', async (t) => {
  t.intercept(DRAIN, 'timeoutMs', { value: 600_000 });
  const { port } = await serve(t, { maxBodyBytes: 1_048_576 });
  const clients = await Promise.all(Array.from({ length: 8 }, () => connect(t, port)));
  const large = chunk(Buffer.alloc(1_048_576, ' '));
  // Without what earlier tests have left to be collected.
  const expected = (await heldBytes()) + 1_048_576;
  for (const client of clients)
    client.send(message({ headers: CHUNKED, body: '' }), large, chunk('x'));
  for (const client of clients) t.match(JSON.parse((await client.answer()).body), { error: 413 });
  t.notOk(
    clients.find(({ socket }) => socket.closed),
    'their ends are awaited',
  );
  t.ok((await heldBytes()) <= expected, 'less than one of 8 bodies is held');
});

t.test('a refused request holds the memory of its head while the rest is drained', async (t) => {
  t.intercept(DRAIN, 'timeoutMs', { value: 600_000 });
  const { port, handler } = await serve(t, { bodyTimeoutMs: 50 });
  const client = await connect(t, port);
  client.send(declaring(10_000, 'x'.repeat(5_000)));
  t.equal((await client.answer()).status, 408);
  const held = handler.bufferedBytes();
  t.ok(held > 3_000 && held < 5_000, `${held} bytes`);
  client.send('x'.repeat(4_000));
  // The answer to another request shows that the server has read what came before.
  await exchange(t, port, message());
  t.equal(handler.bufferedBytes(), held, 'what still comes is not kept');
  client.send('x'.repeat(1_000));
  while (handler.bufferedBytes() > 0) await exchange(t, port, message());
});

t.test('memory of refused requests is limited until they are flushed and drained', async (t) => {
  t.intercept(DRAIN, 'timeoutMs', { value: 600_000 });
  const store = gatedStore();
  const { handler } = await serve(t, { store });
  const port = await listen(t, createServer({ maxHeaderSize: 2_000_000 }, handler));
  const large = { Authorization: undefined, 'X-Large': 'x'.repeat(1_000_000) };
  const most = Math.floor(MAX_REFUSED_BYTES / 1_000_000);
  const withBody = message({ headers: { ...large, 'Content-Length': '9' }, body: '' });
  const withoutBody = message({ headers: large, body: '' });
  /**
   * Sends a request on a new connection, and waits until it is answered or the connection is
   * closed.
   */
  async function refused(request: Buffer): Promise<Client> {
    const client = await connect(t, port);
    client.send(request);
    await untilEventOrClose(client.socket, 'data');
    return client;
  }

  const client = await connect(t, port);
  // The response to the plant holds up the others.
  client.send(message(), ...Array<Buffer>(most).fill(withoutBody));
  while (!(await refused(withoutBody)).socket.destroyed);
  store.letGo();
  t.equal((await client.answer()).status, 200);
  for (let n = 0; n < most; n++) t.equal((await client.answer()).status, 401);

  const first = await refused(withBody);
  let held = 1;
  while (!(await refused(withBody)).socket.destroyed) held++;
  t.equal(held, most);
  first.send('x'.repeat(9));
  while ((await refused(withoutBody)).socket.destroyed);
});

t.test('a body that arrives while the process is blocked counts as in time', async (t) => {
  const timeouts = expireAtOnce(t, 30_000);
  const { port, server } = await serve(t);
  for (const request of [message(), chunkedMessage(FERN_JSON)]) {
    const client = await connect(t, port);
    const requested = once(server, 'request');
    const before = timeouts();
    client.send(request.subarray(0, -5));
    await requested;
    while (timeouts() === before) await new Promise(setImmediate);
    client.send(request.subarray(-5));
    // The timer expires during this wait. The event loop runs timers before it reads sockets.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    t.match(await client.answer(), { status: 200 });
  }
});

t.test('a body that arrives slowly gets no additional time', async (t) => {
  const { port } = await serve(t, { bodyTimeoutMs: 100 });
  const client = await connect(t, port);
  client.send(declaring(1_000_000));
  const trickle = setInterval(() => client.send(' '), 5);
  t.teardown(() => clearInterval(trickle));
  expectFailure(t, await client.answer(), { status: 408 }, 'while it is arriving');
});

t.test('a client that leaves within its body stores nothing and releases its memory', async (t) => {
  const { port, log, server, handler } = await serve(t);
  const requests = [
    declaring(Buffer.byteLength(FERN_JSON) + 1, FERN_JSON),
    message().subarray(0, -1),
    message({ headers: CHUNKED, body: chunk(FERN_JSON) }),
  ];
  for (const request of requests)
    for (const leave of ['end', 'destroy', 'resetAndDestroy'] as const) {
      const serverSide = untilNextClose(server);
      const { socket } = await connect(t, port);
      socket.write(request);
      await once(server, 'request');
      socket[leave]();
      await serverSide;
      await untilReleased({ handler });
    }
  t.equal(log.size, 0);
});

t.test('bodies in tiny chunks are not queued until all of them have arrived', async (t) => {
  const { handler } = await serve(t, { store: storeOf(() => Promise.resolve('created')) });
  const requests: [about: string, request: Buffer, isQueued: boolean][] = [
    ['in chunks', TINY_CHUNKS, false],
    ['declared, of 16 KiB', message({ body: plantOfSize(16_384) }), true],
    ['declared, one byte larger', message({ body: plantOfSize(16_385) }), false],
  ];
  for (const [about, request, isQueued] of requests) {
    let queuedBytes = 0;
    const server = createServer((req, res) => {
      // Runs before the callback of the handler, at the end of the turn.
      setImmediate(() => (queuedBytes = req.readableLength));
      void handler(req, res);
    });
    t.equal((await exchange(t, await listen(t, server), request)).status, 200, about);
    t.equal(queuedBytes > 0, isQueued, about);
  }
});

t.test('a body in chunks of one byte is copied only a few times', async (t) => {
  const text = 'x'.repeat(10_000);
  const chunks = Readable.from(Array.from(text, (byte) => Buffer.from(byte)));
  const req = Object.assign(chunks, { headers: {}, socket: new EventEmitter() });
  const concat = Buffer.concat.bind(Buffer);
  let copied = 0;
  t.intercept(Buffer, 'concat', {
    value: (list: readonly Buffer[], length?: number) => {
      copied += length ?? 0;
      return concat(list, length);
    },
  });
  const reservation = new Budget(1_000_000).reserve(0) as Reservation;
  const body = await readBody(req, DEFAULT_LIMITS, reservation);
  t.equal(body.toString(), text);
  t.ok(copied < 4 * text.length, `${copied} bytes are copied`);
});

t.test('a plant is answered even if a test of the application fakes the timers', async (t) => {
  const { port } = await serve(t);
  for (const name of ['setImmediate', 'setTimeout', 'setInterval'] as const)
    t.intercept(globalThis, name, { value: () => ({ unref: () => undefined }) });
  for (const request of [message(), TINY_CHUNKS, message({ body: '{}' })])
    t.match(await exchange(t, port, request), { status: /200|400/ });
});

t.test('the application may pause the request before and after calling the handler', async (t) => {
  const { handler } = await serve(t);
  const paused = createServer((req, res) => {
    req.pause();
    setImmediate(() => handler(req, res));
  });
  const pausedLater = createServer((req, res) => {
    void handler(req, res);
    req.pause();
  });
  for (const [server, plant] of [
    [paused, chunkedMessage(FERN_JSON)],
    [pausedLater, message()],
  ] as const) {
    const client = await connect(t, await listen(t, server));
    client.send(plant, message({ body: 'x' }), message({ target: '/elsewhere' }));
    for (const status of [200, 400, 404]) t.equal((await client.answer()).status, status);
  }
});
