import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

import t from 'tap';

import { DRAIN, MAX_PENDING_REFUSALS } from '../../dist/http/limits.js';
import { createPlantHandler, PlantStoreError } from '../../dist/index.js';
import {
  chunk,
  CHUNKED,
  chunkedMessage,
  connect,
  exchange,
  FERN,
  isFailure,
  message,
  TOKEN,
  type Client,
  type Message,
} from '../client.js';
import { hastenTimers, listen, serve, whenServed } from '../service.js';
import { gatedStore, openLog, storeOf } from '../stores.js';

/** A request whose Content-Length is `length`, whatever its body is. */
function declaring(length: number, body: string | Buffer = ''): Buffer {
  return message({ headers: { 'Content-Length': String(length) }, body });
}

/** A plant whose JSON has a given length in bytes. */
function plantOf(bytes: number, id = 7): string {
  const rest = `{"id":${id},"name":""}`.length;
  return `{"id":${id},"name":"${'x'.repeat(bytes - rest)}"}`;
}

/** Resolves as soon as the server has closed its side of the next connection. */
function nextClose(server: Server): Promise<Socket> {
  return new Promise((resolve) => {
    server.once('connection', (socket: Socket) => socket.on('close', () => resolve(socket)));
  });
}

/** Sends the same bytes again and again until the connection is closed. */
async function flood({ socket, closed }: Client, bytes: Buffer): Promise<void> {
  while (!socket.destroyed)
    if (!socket.write(bytes))
      await Promise.race([closed, new Promise((resolve) => socket.once('drain', resolve))]);
  await closed;
}

t.test('a body of exactly the limit is stored, and one byte more is refused', async (t) => {
  const { port, log } = await serve(t, { maxBodyBytes: FERN.length });
  t.equal((await exchange(t, port, message())).status, 200);
  const answer = await exchange(t, port, message({ body: `${FERN} ` }));
  isFailure(t, answer, { status: 400, error: 413 }, 'one byte more');
  t.match(answer.body, `${FERN.length} bytes`, 'the message has the limit');
  t.equal(log.size, 1);
});

t.test('the body limit holds however a body is split into chunks', async (t) => {
  const { port } = await serve(t, { maxBodyBytes: FERN.length });
  const client = await connect(t, port);
  for (let at = 1; at < FERN.length; at++) {
    const [head, tail] = [FERN.slice(0, at), FERN.slice(at)];
    client.send(chunkedMessage(head, tail));
    t.equal((await client.answer()).status, 200, `split at ${at}`);
    const answer = await exchange(t, port, chunkedMessage(head, `${tail} `));
    isFailure(t, answer, { status: 400, error: 413 }, `split at ${at}, one byte more`);
  }
  const everyCharacter = FERN.split('');
  client.send(chunkedMessage(...everyCharacter));
  t.equal((await client.answer()).status, 200, 'split everywhere');
  const answer = await exchange(t, port, chunkedMessage(...everyCharacter, ' '));
  isFailure(t, answer, { status: 400, error: 413 }, 'split everywhere, one byte more');
});

t.test('a body of the limit fits into a budget of that size, however it is split', async (t) => {
  const limit = 10_000;
  const { port } = await serve(t, { maxBodyBytes: limit, maxBufferedBytes: limit });
  const body = plantOf(limit);
  for (const at of [1, 3_000, 4_095, 4_096, 4_097, 5_001, 9_999]) {
    const request = chunkedMessage(body.slice(0, at), body.slice(at));
    t.equal((await exchange(t, port, request)).status, 200, `split at ${at}`);
  }
});

t.test('a body may arrive byte by byte', async (t) => {
  const { port } = await serve(t);
  const client = await connect(t, port);
  client.socket.setNoDelay(true);
  for (const request of [message(), chunkedMessage(FERN)]) {
    for (const byte of request)
      await new Promise((resolve) => client.socket.write(Buffer.from([byte]), resolve));
    t.equal((await client.answer()).body, '{"name":"Boston fern","tag":"indoor"}');
  }
});

t.test('a body that is declared too large is refused before a byte of it is sent', async (t) => {
  const { port } = await serve(t, { maxBodyBytes: 100 });
  for (const length of [101, 16_777_216, 2 ** 53]) {
    const answer = await exchange(t, port, declaring(length));
    isFailure(t, answer, { status: 400, error: 413 }, `${length} bytes`);
  }
});

t.test('a client that sends a refused body before it reads gets the answer', async (t) => {
  const { port } = await serve(t, { maxBodyBytes: 100 });
  const client = await connect(t, port);
  const body = Buffer.alloc(DRAIN.maxBytes, ' ');
  client.socket.pause();
  await new Promise((resolve) => client.socket.write(message({ body }), resolve));
  client.socket.resume();
  const answer = await client.answer();
  isFailure(t, answer, { status: 400, error: 413 }, 'a rest that can be drained');
  client.send(message());
  t.equal((await client.answer()).status, 200, 'the connection can be used again');
});

t.test('an endless body is answered, then its connection is closed', async (t) => {
  const { port, server } = await serve(t, { maxBodyBytes: 100 });
  for (const [about, head] of [
    ['in chunks', message({ headers: CHUNKED, body: '' })],
    ['declared', declaring(2 ** 50)],
  ] as const) {
    const serverSide = nextClose(server);
    const client = await connect(t, port);
    client.send(head);
    const flooded = flood(client, chunk(Buffer.alloc(65_536, ' ')));
    const answer = await client.answer();
    const headers = { connection: 'close' };
    isFailure(t, answer, { status: 400, error: 413, headers }, about);
    await flooded;
    const { bytesRead } = await serverSide;
    t.ok(bytesRead > DRAIN.maxBytes, `${about}: not before the bound`);
    t.ok(bytesRead < DRAIN.maxBytes + 1_048_576, `${about}: not long after it`);
  }
});

t.test('a client that stops within a refused body is disconnected', async (t) => {
  hastenTimers(t, DRAIN.timeoutMs);
  const { port } = await serve(t, { maxBodyBytes: 100 });
  const client = await connect(t, port);
  client.send(declaring(101, 'x'));
  isFailure(t, await client.answer(), { status: 400, error: 413 }, 'it is answered at once');
  await client.closed;
});

t.test('a connection can be used again after a small body has been refused', async (t) => {
  const { port } = await serve(t, { maxBodyBytes: 100 });
  const rows: readonly [expected: number, request: Message][] = [
    [401, { headers: { Authorization: undefined } }],
    [400, { headers: { Authorization: ['Bearer a', 'Bearer b'] } }],
    [404, { target: '/elsewhere' }],
    [405, { method: 'PUT' }],
    [415, { headers: { 'Content-Type': 'text/plain' } }],
    [415, { headers: { 'Content-Encoding': 'gzip' } }],
    [413, { body: plantOf(101) }],
    [413, { headers: CHUNKED, body: Buffer.concat([plantOf(101), ''].map(chunk)) }],
    [400, { body: 'x' }],
    [422, { body: '{}' }],
  ];
  const client = await connect(t, port);
  for (const [error, request] of rows) {
    client.send(message(request));
    const answer = await client.answer();
    t.match(JSON.parse(answer.body), { error });
    t.equal(answer.headers.connection, 'keep-alive', `after ${error}`);
    client.send(message());
    t.equal((await client.answer()).status, 200, `after ${error}`);
  }
  client.send(...rows.map(([, request]) => message(request)), message());
  for (const [error] of rows) t.match(JSON.parse((await client.answer()).body), { error });
  t.equal((await client.answer()).status, 200, 'after all of them, pipelined');
});

t.test('a body that is shorter than its Content-Length stores nothing', async (t) => {
  const { port, log, server } = await serve(t);
  const requests = [
    declaring(FERN.length + 1, FERN),
    declaring(FERN.length, FERN.slice(0, -1)),
    message({ headers: CHUNKED, body: chunk(FERN) }),
  ];
  for (const request of requests)
    for (const leave of ['end', 'destroy', 'resetAndDestroy'] as const) {
      const serverSide = nextClose(server);
      const { socket } = await connect(t, port);
      socket.write(request);
      await once(server, 'request');
      socket[leave]();
      await serverSide;
    }
  t.equal((await exchange(t, port, message({ body: '{"id":8,"name":"last"}' }))).status, 200);
  t.equal(log.size, 1, 'only the complete one is stored');
});

t.test('a body ends after as many bytes as its Content-Length', async (t) => {
  const { port, log } = await serve(t);
  const client = await connect(t, port);
  client.send(declaring(FERN.length - 1, `${FERN.slice(0, -1)}\r\n`), message());
  isFailure(t, await client.answer(), { status: 400 }, 'without its last brace');
  t.equal((await client.answer()).status, 200, 'the next one');
  t.equal(log.size, 1);
});

t.test('a body that does not arrive in time gets a 408, and its connection ends', async (t) => {
  hastenTimers(t, DRAIN.timeoutMs);
  const { port, log } = await serve(t, { bodyTimeoutMs: 50 });
  const requests = {
    'not begun': declaring(10),
    'stopped in the middle': declaring(10, '{"id"'),
    'complete but for the last chunk': message({ headers: CHUNKED, body: chunk(FERN) }),
  };
  const headers = { connection: 'close' };
  const ends = Object.entries(requests).map(async ([about, request]) => {
    const client = await connect(t, port);
    client.send(request);
    isFailure(t, await client.answer(), { status: 408, headers }, about);
    await client.closed;
  });
  await Promise.all(ends);
  t.equal(log.size, 0);
});

t.test('a body that arrives slowly gets no more time', async (t) => {
  const { port } = await serve(t, { bodyTimeoutMs: 100 });
  const client = await connect(t, port);
  client.send(declaring(1_000_000));
  const trickle = setInterval(() => client.send(' '), 5);
  t.teardown(() => clearInterval(trickle));
  isFailure(t, await client.answer(), { status: 408 }, 'while it is arriving');
});

t.test('the memory of a request is released if its client disconnects', async (t) => {
  const limits = { maxBodyBytes: 10_000, maxBufferedBytes: 10_000 };
  const { port, server } = await serve(t, limits);
  for (const leave of ['end', 'destroy', 'resetAndDestroy'] as const) {
    const serverSide = nextClose(server);
    const client = await connect(t, port);
    client.send(declaring(10_000, 'x'.repeat(9_000)));
    await once(server, 'request');
    client.socket[leave]();
    await serverSide;
    const answer = await exchange(t, port, message({ body: plantOf(10_000) }));
    t.equal(answer.status, 200, `after ${leave}`);
  }
});

t.test('the rest of a refused body is dropped', async (t) => {
  const limits = { maxBodyBytes: 10_000, maxBufferedBytes: 10_000, bodyTimeoutMs: 50 };
  const { port } = await serve(t, limits);
  const client = await connect(t, port);
  client.send(declaring(10_000, 'x'));
  t.equal((await client.answer()).status, 408);
  client.send('x'.repeat(9_000));
  const answer = await exchange(t, port, message({ body: plantOf(10_000) }));
  t.equal(answer.status, 200);
});

t.test('no timer is left after a body, however it ends', async (t) => {
  const timers = (): number =>
    process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  const store = storeOf(() => Promise.resolve('created'));
  const { port } = await serve(t, { store, maxBodyBytes: 100 });
  for (const [request, status] of [
    [message({ headers: { Connection: 'close' } }), 200],
    [chunkedMessage('x'.repeat(101)), 400],
  ] as const) {
    const client = await connect(t, port);
    const before = timers();
    client.send(request.subarray(0, -1));
    while (timers() === before) await sleep(1);
    client.send(request.subarray(-1));
    t.equal((await client.answer()).status, status);
    await client.closed;
    t.equal(timers(), before, `of a body that is answered with ${status}`);
  }
});

t.test('every answer releases the memory of its request', async (t) => {
  interface Row {
    readonly status: number;
    readonly request: Buffer;
    readonly failure?: Error;
    readonly bodyTimeoutMs?: number;
  }
  const request = message({ body: plantOf(10_000) });
  const conflict = new PlantStoreError('conflict', 'another plant');
  const rows: Readonly<Record<string, Row>> = {
    created: { status: 200, request },
    conflict: { status: 400, request, failure: conflict },
    fault: { status: 500, request, failure: new Error('fault') },
    'not JSON': { status: 400, request: message({ body: 'x'.repeat(10_000) }) },
    'too large': { status: 400, request: chunkedMessage('x'.repeat(9_000), 'x'.repeat(9_000)) },
    'too slow': { status: 408, request: declaring(10_000, 'x'.repeat(9_000)), bodyTimeoutMs: 50 },
  };
  for (const [about, { status, request, failure, bodyTimeoutMs = 30_000 }] of Object.entries(rows))
    await t.test(about, async (t) => {
      const store = storeOf(async ({ id }) => {
        if (id === 7n && failure) throw failure;
        return 'created';
      });
      const limits = { maxBodyBytes: 10_000, maxBufferedBytes: 10_000, bodyTimeoutMs };
      const { port } = await serve(t, { store, ...limits });
      const client = await connect(t, port);
      client.send(request);
      t.equal((await client.answer()).status, status);
      const next = message({ body: '{"id":8,"name":"fern"}' });
      t.equal(await whenServed(t, port, next), 200, 'the memory is released');
    });
});

t.test('the number of refusals that are not flushed is limited', async (t) => {
  const store = gatedStore();
  const { port } = await serve(t, { store });
  // As many as Node reads at once, behind a plant whose answer holds them all up.
  const refused = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(2_000);
  const clients: Client[] = [];
  let isCut = false as boolean;
  while (!isCut) {
    const client = await connect(t, port);
    client.send(message({ body: `{"id":${clients.length},"name":"fern"}` }), refused);
    clients.push(client);
    void client.closed.then(() => (isCut = true));
    await store.arrived(clients.length);
  }
  t.ok(clients.length > MAX_PENDING_REFUSALS / 2_000, `${clients.length} clients`);

  const [{ socket }] = clients as [Client];
  let answers = '';
  socket.on('data', (data: Buffer) => (answers += data.toString()));
  store.letGo();
  const statuses = (): string[] => answers.match(/(?<=HTTP\/1\.1 )\d+/g) ?? [];
  while (statuses().length < 2_001) await once(socket, 'data');
  t.strictSame(statuses(), ['200', ...Array.from({ length: 2_000 }, () => '401')], 'in order');
  t.equal((await exchange(t, port, message({ target: '/other' }))).status, 404, 'a later client');
});

t.test(
  'thousands of requests are refused at once, because none of them waits for another',
  async (t) => {
    const { port } = await serve(t);
    const request = 'POST /plants HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}';
    const count = 1_000;
    const answered = Array.from({ length: (2 * MAX_PENDING_REFUSALS) / count }, async () => {
      const client = await connect(t, port);
      let answers = '';
      client.socket.on('data', (data: Buffer) => (answers += data.toString()));
      client.send(request.repeat(count - 1), request.replace('Host', 'Connection: close\r\nHost'));
      await client.closed;
      return answers.match(/HTTP\/1\.1 401 /g)?.length;
    });
    t.strictSame(new Set(await Promise.all(answered)), new Set([count]));
  },
);

t.test('the bodies of all requests together are limited by the budget', async (t) => {
  const store = gatedStore();
  // Each body counts four times, and each head about 3,700 bytes.
  const limits = { maxBodyBytes: 10_000, maxBufferedBytes: 131_000 };
  const { port } = await serve(t, { store, ...limits });
  const request = message({ body: plantOf(10_000) });
  const waiting = [whenServed(t, port, request), whenServed(t, port, request)];
  await store.arrived(2);
  const headers = { 'retry-after': '1' };
  const third = await exchange(t, port, request);
  isFailure(t, third, { status: 503, headers }, 'a third does not fit');
  waiting.push(whenServed(t, port, message({ body: plantOf(9_900) })));
  await store.arrived(3);
  isFailure(t, await exchange(t, port, message()), { status: 503, headers }, 'no other plant fits');
  store.letGo();
  t.strictSame(await Promise.all(waiting), [200, 200, 200]);
  t.equal(await whenServed(t, port, request), 200, 'the memory is released');
});

t.test('even a small request counts in the budget', async (t) => {
  const store = gatedStore();
  const reports: string[] = [];
  const { port } = await serve(t, {
    store,
    maxBodyBytes: 100,
    maxBufferedBytes: 3 * 4096,
    report: (message) => reports.push(message),
  });
  const waiting = Array.from({ length: 3 }, () => exchange(t, port, message()));
  await store.arrived(3);
  for (let n = 4; n < 30; n++)
    isFailure(t, await exchange(t, port, message()), { status: 503 }, `request ${n}`);
  t.match(
    reports[0],
    /^overloaded: requests hold \d+ bytes \(maxBufferedBytes, PLANT_STORE_MAX_BUFFERED\), more are refused$/,
  );
  t.equal(reports.length, 1);
  store.letGo();
  for (const { status } of await Promise.all(waiting)) t.equal(status, 200);
});

t.test('the smallest budget allows one plant at a time', async (t) => {
  const limits = { maxBodyBytes: FERN.length, maxBufferedBytes: FERN.length };
  const { port } = await serve(t, limits);
  t.equal((await exchange(t, port, message())).status, 200);
  t.equal((await exchange(t, port, message())).status, 200);
});

t.test('a client that does not read its answer is disconnected, its memory freed', async (t) => {
  // Larger than the buffers of the system on both sides, and as large as the whole budget.
  const size = 16 * 1_048_576;
  const limits = { maxBodyBytes: size, maxBufferedBytes: size, bodyTimeoutMs: 50 };
  const store = storeOf(async () => 'created');
  const handler = createPlantHandler({ store, tokens: [TOKEN], ...limits });
  let left: object = { body: { id: 7, name: 'x'.repeat(size) } };
  const server = createServer((req, res) => {
    req.resume().on('end', () => handler(Object.assign(req, left), res));
  });
  const port = await listen(t, server);
  const serverSide = nextClose(server);
  const client = await connect(t, port);
  client.socket.pause();
  client.send(message());
  const { bytesWritten } = await serverSide;
  t.ok(bytesWritten > 0, 'after the answer has begun');

  // Another plant that needs the whole budget, but has a short answer.
  left = { body: FERN.padEnd(size) };
  t.equal(await whenServed(t, port, message()), 200, 'the memory is released');
});

t.test('answers to a client that has disconnected release their memory', async (t) => {
  const store = gatedStore();
  const limits = { maxBodyBytes: 2 * 4096, maxBufferedBytes: 2 * 4096 };
  const { port, server } = await serve(t, { store, ...limits });
  const serverSide = nextClose(server);
  const client = await connect(t, port);
  client.send(message(), message());
  await store.arrived(2);
  client.socket.destroy();
  await serverSide;
  isFailure(t, await exchange(t, port, message()), { status: 503 }, 'the plants are pending');
  store.letGo();
  await new Promise(setImmediate);
  const answer = await exchange(t, port, message({ body: plantOf(2 * 4096) }));
  t.equal(answer.status, 200);
});

t.test('the application may have set an encoding for the body', async (t) => {
  const text = '{"id":7,"name":"F\u00e5rn \u{1f33f}"}';
  const body = Buffer.from(text);
  for (const encoding of ['utf8', 'latin1', 'hex', 'base64', 'base64url'] as const)
    await t.test(encoding, async (t) => {
      const store = await openLog(t);
      const handler = createPlantHandler({ store, tokens: [TOKEN], maxBodyBytes: body.length });
      const server = createServer((req, res) => handler(req.setEncoding(encoding), res));
      const client = await connect(t, await listen(t, server));
      for (let at = 1; at < body.length; at++) {
        client.send(chunkedMessage(body.subarray(0, at), body.subarray(at)));
        t.equal((await client.answer()).body, '{"name":"F\u00e5rn \u{1f33f}"}', `split at ${at}`);
      }
      client.send(chunkedMessage(body, ' '));
      isFailure(t, await client.answer(), { status: 400, error: 413 }, 'one byte more');
    });
});

t.test('a body that the application decodes is refused unless its bytes are known', async (t) => {
  const store = await openLog(t);
  const handler = createPlantHandler({ store, tokens: [TOKEN] });
  const invalid = Buffer.from('{"id":7,"name":"f\xe4rn"}', 'latin1');
  const rows: readonly (readonly [BufferEncoding, Buffer, number])[] = [
    ['utf8', invalid, 400],
    ['utf8', Buffer.from('{"id":7,"name":"\ufffd"}'), 400],
    ['utf8', Buffer.from('{"id":7,"name":"\\ufffd"}'), 200],
    ['latin1', invalid, 400],
    ['latin1', Buffer.from('{"id":7,"name":"\ufffd"}'), 200],
    ['ascii', Buffer.from(FERN), 400],
    ['utf16le', Buffer.from(FERN), 400],
  ];
  for (const [encoding, body, status] of rows) {
    const server = createServer((req, res) => handler(req.setEncoding(encoding), res));
    const port = await listen(t, server);
    const about = `${encoding}: ${body.toString('latin1')}`;
    for (const request of [
      message({ body }),
      chunkedMessage(body.subarray(0, 17), body.subarray(17)),
    ])
      t.equal((await exchange(t, port, request)).status, status, about);
  }
  t.equal(store.size, 1);
});

t.test('the application may pause the request before and after calling the handler', async (t) => {
  const handler = createPlantHandler({ store: await openLog(t), tokens: [TOKEN] });
  const paused = createServer((req, res) => {
    req.pause();
    setImmediate(() => handler(req, res));
  });
  const pausedLater = createServer((req, res) => {
    void handler(req, res);
    req.pause();
  });
  for (const server of [paused, pausedLater]) {
    const client = await connect(t, await listen(t, server));
    for (const request of [message(), message({ body: 'x' }), message({ target: '/elsewhere' })])
      client.send(request);
    t.equal((await client.answer()).status, 200);
    t.equal((await client.answer()).status, 400);
    t.equal((await client.answer()).status, 404);
  }
});
