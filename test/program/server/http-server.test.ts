import { once } from 'node:events';
import { connect as connectTo, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { mock } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { connect as connectSecurely, TLSSocket } from 'node:tls';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import t, { type Test } from 'tap';

import { createPlantHandler } from '../../../dist/http/handler.js';
import { MAX_HEADER_LINES } from '../../../dist/http/limits.js';
import {
  CONNECTION_LIMITS,
  type PlantServerOptions,
} from '../../../dist/program/server/http-server.js';
import { STOP_TIMES } from '../../../dist/program/server/stop.js';
import { REPORT_RATE } from '../../../dist/report.js';
import type { PlantStore } from '../../../dist/store.js';
import { selfSigned } from '../../helpers/certificate.js';
import {
  chunk,
  CHUNKED,
  chunkedMessage,
  connect,
  expectFailure,
  message,
  type Message,
  TOKEN,
  type Client,
  type Expected,
} from '../../helpers/client.js';
import { FERN_JSON, inJson, IVY, MOSS } from '../../helpers/plants.js';
import { expireAtOnce, listenTo, startPlantServer } from '../../helpers/service.js';
import { gatedStore, storeOf } from '../../helpers/stores.js';

/** A store that takes every plant at once. */
const takesAll = storeOf(() => Promise.resolve('created'));

interface Options extends Partial<PlantServerOptions> {
  readonly store?: PlantStore;
}

const start = (t: Test, { store = takesAll, ...options }: Options = {}) =>
  startPlantServer(t, { handler: createPlantHandler({ store, tokens: [TOKEN] }), ...options });

/** The expected answers: 200 for a plant, and another number or an `Expected` for a failure. */
type Answers = readonly (number | Expected)[];

/** Checks the next answers on a connection. */
async function expectNext(
  t: Test,
  client: Client,
  expected: Answers,
  about: string,
): Promise<void> {
  for (const each of expected) {
    const answer = await client.answer();
    if (each === 200) t.match(answer, { status: 200, body: /^\{"name":"/ }, about);
    else expectFailure(t, answer, typeof each === 'number' ? { status: each } : each, about);
  }
}

/** Checks that a connection ends, and that nothing else comes on it before. */
async function expectEnd(t: Test, client: Client, about: string): Promise<void> {
  await client.closed;
  await t.rejects(client.answer(), { message: 'closed after 0 bytes of an answer' }, about);
}

/** Checks that a connection can be used again. */
async function expectAlive(t: Test, client: Client, about: string): Promise<void> {
  client.send(message());
  await expectNext(t, client, [200], `${about}: the next request is answered`);
  client.socket.destroy();
}

/** A client that has sent a request, and got its answer. */
async function usedClient(t: Test, port: number): Promise<Client> {
  const client = await connect(t, port);
  client.send(message());
  await expectNext(t, client, [200], 'the first request');
  return client;
}

/** The bytes that a client sends, and the answers that it gets. */
type Table = Record<string, readonly [bytes: string | Buffer, ...expected: Answers]>;

/**
 * The state of the connection after the answers. A `half-closed` connection is one whose client
 * ends its side once it has sent all bytes.
 */
type Course = 'closed' | 'kept' | 'half-closed';

/** A request with another header line. */
const withLine = (line: string, request = message()): string =>
  request.toString().replace('\r\n', `\r\n${line}\r\n`);

const without = (name: string, request = message()): string =>
  request.toString().replace(new RegExp(`${name}: .*\r\n`), '');

/** A request in chunks of which the body is not well-formed. */
const withChunks = (chunks: string, headers: Message['headers'] = {}): Buffer =>
  message({ headers: { ...CHUNKED, ...headers }, body: chunks });

/** Several requests, or parts of them, in one packet. */
const inOnePacket = (...parts: readonly (string | Buffer)[]): Buffer =>
  Buffer.concat(parts.map((part) => Buffer.from(part)));

/** A request without its body, which waits for 100 Continue. */
const waiting = (parts: Message): string =>
  withLine('Expect: 100-continue', message({ ...parts, body: '' }));

const lines = (count: number): string => Array(count).fill('X: x').join('\r\n');
const withExtension = (length: number): Buffer =>
  withChunks(String(chunk(FERN_JSON)).replace('\r\n', `;${'x'.repeat(length)}\r\n`) + LAST_CHUNK);

const wrongToken = { headers: { Authorization: 'Bearer wrong' } };
const LAST_CHUNK = '0\r\n\r\n';
const LONG = 'x'.repeat(CONNECTION_LIMITS.maxHeaderSize);
const LONGEST = LONG.slice(message().length);
const MOST_LINES = withLine(lines(MAX_HEADER_LINES - 4));
/** Longer than the parser of node:http accepts: 16 KiB. */
const EXTENSION = 20_000;
/** More than the buffers of a connection hold. */
const LARGE = Buffer.alloc(30_000_000);
const NOT_HTTP = 'hello\r\n\r\n';

const exchanges: Record<string, readonly [course: Course, table: Table]> = {
  'what is no request, or needs no body to be refused, ends its connection': [
    'closed',
    {
      'a line of text': [NOT_HTTP, 400],
      'a method that nobody knows': [message({ method: 'BREW' }), 400],
      'lines that end in LF alone': [message().toString().replaceAll('\r\n', '\n'), 400],
      'a length and chunks': [message({ headers: { 'Transfer-Encoding': 'chunked' } }), 400],
      'a bad chunk after a good one': [withChunks(`1\r\n{\r\nx\r\n`), 400],
      'one long header line': [withLine(`X: ${LONG}`), 431],
      'many short header lines': [withLine(lines(LONG.length / 2)), 431],
      'long trailers': [withChunks(`0\r\nX: ${LONG}\r\n\r\n`), 431],
      'a large chunk extension': [withExtension(EXTENSION), 413],
      'a body whose length is not known': [withChunks('', { 'Transfer-Encoding': 'gzip' }), 501],
      'CONNECT, without an answer': ['CONNECT plants:80 HTTP/1.1\r\nHost: plants:80\r\n\r\n'],
      'another expectation': [withLine('Expect: 200-ok'), 417],
      'one beside 100-continue': [withLine('Expect: 100-continue, 200-ok'), 417],
      'one with a wrong token': [withLine('Expect: 200-ok', message(wrongToken)), 417],
    },
  ],
  [`a header section has room for long lines, and for ${MAX_HEADER_LINES} of them`]: [
    'kept',
    {
      'a long line': [withLine(`X: ${LONGEST}`), 200],
      'a long target': [message({ target: `/plants?${LONGEST}` }), 200],
      'a chunk extension': [withExtension(1_000), 200],
      'the most lines': [MOST_LINES, 200],
      'one line more': [withLine('X: x', Buffer.from(MOST_LINES)), 431],
      'no Host': [without('Host'), 400],
    },
  ],
  '100 Continue is not sent if the head of the request is refused': [
    'half-closed',
    {
      'a wrong token': [waiting(wrongToken), 401],
      'another media type': [
        waiting({ headers: { 'Content-Type': 'text/plain' } }),
        { status: 400, error: 415 },
      ],
      'a body that is too large': [
        waiting({ headers: { 'Content-Length': '1048577' } }),
        { status: 400, error: 413 },
      ],
    },
  ],
  'a client that half-closes its connection gets all answers': [
    'half-closed',
    {
      nothing: [''],
      'a plant': [message(), 200],
      'three requests': [inOnePacket(message(), message(wrongToken), message()), 200, 401, 200],
      'a part of a request line': ['POST /pl', 400],
      'a part of a header line': [message().subarray(0, 40), 400],
      'a part of a body': [message().subarray(0, -1), 400],
      'no last chunk': [chunkedMessage(FERN_JSON).subarray(0, -LAST_CHUNK.length), 400],
      'a part of a second request': [inOnePacket(message(), message().subarray(0, -1)), 200, 400],
    },
  ],
};

for (const [promise, [course, table]] of Object.entries(exchanges))
  t.test(promise, async (t) => {
    const { port } = await start(t);
    for (const [what, [bytes, ...expected]] of Object.entries(table)) {
      const client = await connect(t, port);
      client.send(bytes);
      if (course === 'half-closed') client.socket.end();
      await expectNext(t, client, expected, what);
      await (course === 'kept' ? expectAlive : expectEnd)(t, client, what);
    }
  });

t.test('100 Continue is sent if the head of the request is valid', async (t) => {
  const { port } = await start(t);
  for (const body of [FERN_JSON, `{"id":7,"name":"${LONG}"}`]) {
    const client = await connect(t, port);
    const about = `${Buffer.byteLength(body)} bytes`;
    client.send(waiting({ headers: { 'Content-Length': String(Buffer.byteLength(body)) } }));
    t.equal((await client.answer()).text, 'HTTP/1.1 100 Continue\r\n\r\n');
    client.send(body);
    await expectNext(t, client, [200], about);
    await expectAlive(t, client, about);
  }
});

t.test('what follows pending requests on a connection is answered after them', async (t) => {
  const garbage = 'x'.repeat(1_000_000);
  const others = [message({ target: '/plant' }), message(wrongToken), message({ body: '' })];
  const behind: Table = {
    'other requests': [inOnePacket(...others, message()), 404, 401, 400, 200],
    garbage: [garbage, 400],
    'a failure and garbage': [inOnePacket(message(wrongToken), garbage), 401, 400],
    'a malformed chunk': [withChunks('zz'), 400],
    'a large chunk extension': [withChunks(`1;${'x'.repeat(EXTENSION)}`), 413],
    'a wrong token, then a malformed chunk': [withChunks('zz', wrongToken.headers), 401],
  };
  for (const [what, [bytes, ...expected]] of Object.entries(behind)) {
    const store = gatedStore();
    const { port } = await start(t, { store });
    const client = await connect(t, port);
    client.send(inOnePacket(message(), message(), bytes));
    await store.untilArrived(2);
    client.socket.end();
    store.letGo();
    await expectNext(t, client, [200, 200, ...expected], what);
    await expectEnd(t, client, what);
  }
});

t.test('a client that keeps sending after a refusal gets the answer, and no reset', async (t) => {
  const { port } = await start(t);
  const refused: Table = {
    'not HTTP': [NOT_HTTP, 400],
    'a bad chunk': [withChunks('x\r\n'), 400],
    'a large header section': [withLine(`X: ${LONG}`), 431],
    'a large chunk extension': [withExtension(EXTENSION), 413],
    'no token before a bad chunk': [without('Authorization', withChunks(`${LONG}\r\n`)), 401],
  };
  for (const [what, [bytes, ...expected]] of Object.entries(refused)) {
    const client = await connect(t, port);
    const errors: Error[] = [];
    client.socket.on('error', (error) => errors.push(error));
    client.send(bytes, Buffer.alloc(4_000_000, 'x'));
    await expectNext(t, client, expected, what);
    await expectEnd(t, client, what);
    t.strictSame(errors, [], what);
  }
});

t.test('a connection that its client resets does not end the program', async (t) => {
  const { port } = await start(t);
  for (const [bytes, ...expected] of [[''], [NOT_HTTP, 400]] as const) {
    const client = await connect(t, port);
    client.send(bytes);
    await expectNext(t, client, expected, bytes);
    client.socket.resetAndDestroy();
    await client.closed;
    await expectAlive(t, await connect(t, port), 'the server');
  }
});

t.test('connections beyond the maximum are closed at once', async (t) => {
  const written = t.capture(console, 'error', () => undefined);
  const { port } = await start(t, { maxConnections: 2 });
  const [first, second] = [await connect(t, port), await connect(t, port)];
  for (let n = 0; n < 2 * REPORT_RATE.count; n++)
    await expectEnd(t, await connect(t, port), 'a third');
  const overload =
    'plant-store: overloaded: 2 connections are open (PLANT_STORE_MAX_CONNECTIONS), more are closed at once';
  const reports = written().map(({ args }) => args.join(' '));
  t.strictSame(reports, Array(REPORT_RATE.count).fill(overload), 'the rate of reports is limited');
  await expectAlive(t, first, 'the first');
  await first.closed;
  await expectAlive(t, second, 'the second');
});

t.test('a failure that cannot be sent any more is not published', async (t) => {
  let published = 0;
  listenTo(t, 'plant-store:response', () => published++);
  const client = await connect(t, (await start(t)).port);
  client.send(inOnePacket(withLine('Connection: close'), NOT_HTTP));
  await expectNext(t, client, [200], 'the last answer');
  await expectEnd(t, client, 'the connection');
  t.equal(published, 1);
});

t.test('a connection that a failure has ended leaves no timer behind', async (t) => {
  const timers = (): number =>
    process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length;
  const server = await start(t);
  const before = timers();
  const client = await connect(t, server.port);
  client.send(NOT_HTTP);
  await expectNext(t, client, [400], 'before');
  await expectEnd(t, client, 'the connection');
  while ((await server.countConnections()).open > 0) await setImmediate();
  // `close` is emitted after the connection is no longer counted.
  await setImmediate();
  t.equal(timers(), before);
});

t.test('a connection is closed after 5 s if its client does not close it', async (t) => {
  const ends = expireAtOnce(t, 5_000);
  const server = await start(t);
  const client = await connect(t, server.port);
  client.socket.allowHalfOpen = true;
  client.send(NOT_HTTP);
  await expectNext(t, client, [400], 'before');
  while ((await server.countConnections()).open > 0) await setImmediate();
  t.equal(ends(), 1);
});

function tlsMaterial() {
  const { cert, key } = selfSigned();
  return { cert: Buffer.from(cert), key: Buffer.from(key) };
}

t.test('HTTPS is served with a certificate and its key', async (t) => {
  const tls = tlsMaterial();
  const server = await start(t, { tls });
  const { url, port } = server;
  t.equal(url, `https://127.0.0.1:${port}`);

  const plain = await connect(t, port);
  plain.send(message());
  await expectEnd(t, plain, 'a client that does not speak TLS');

  const trusting = { port, host: '127.0.0.1', ca: tls.cert, servername: 'localhost' };
  const finished = connectSecurely(trusting).end(message());
  t.match(await text(finished), /^HTTP\/1\.1 200 OK\r\n/, 'to a client that has half-closed');
  await server.stop();
});

t.test('a connection whose client ends it during the TLS handshake is closed', async (t) => {
  const server = await start(t, { tls: tlsMaterial() });
  const { port } = server;
  // Only the time limit of a handshake closes this connection, before any that begins later.
  const silent = await connect(t, port);
  const options = { port, host: '127.0.0.1', servername: 'localhost' };
  const clients: Record<string, () => Socket> = {
    'before a byte': () => connectTo(port, '127.0.0.1').end(),
    'amid its first message': () => connectTo(port, '127.0.0.1').end('\x16\x03\x01'),
    'because it does not trust the certificate': () => connectSecurely(options),
    'because of that, in TLS 1.2': () => connectSecurely({ ...options, maxVersion: 'TLSv1.2' }),
  };
  for (const [when, begin] of Object.entries(clients)) {
    const client = begin()
      .on('error', () => undefined)
      .resume();
    await Promise.race([new Promise((resolve) => client.once('close', resolve)), silent.closed]);
    while ((await server.countConnections()).open > 1 && !silent.socket.closed)
      await setImmediate();
    t.notOk(silent.socket.closed, when);
  }
});

/** Short time limits, in milliseconds. */
const SHORT_TIMES = {
  handshakeTimeout: 500,
  headersTimeout: 500,
  requestTimeout: 1_000,
  connectionsCheckingInterval: 50,
};

t.test('late handshakes end, late requests get 408, and nothing after is stored', async (t) => {
  for (const [name, value] of Object.entries(SHORT_TIMES))
    t.intercept(CONNECTION_LIMITS, name as keyof typeof SHORT_TIMES, { value, enumerable: true });
  const original = Reflect.get(TLSSocket.prototype, 'setTimeout') as Socket['setTimeout'];
  const timeouts = t.capture(TLSSocket.prototype, 'setTimeout', original);
  const tls = tlsMaterial();
  const handshake = await connect(t, (await start(t, { tls })).port);
  // The defaults of node:http are longer than this test should take.
  listenTo(t, 'http.server.request.start', (message) => {
    const { headersTimeout, requestTimeout } = SHORT_TIMES;
    t.match(message, { server: { headersTimeout, requestTimeout } });
  });
  const [gated, plants] = [gatedStore(), new Set<bigint>()];
  const store = storeOf((plant) => {
    plants.add(plant.id);
    return plant.id === MOSS.id ? gated.add(plant) : takesAll.add(plant);
  });
  const { port } = await start(t, { store });
  const late = message({ body: inJson(IVY) });
  /** A client that sends this much of a request that comes late. */
  const begin = async (length: number, client = connect(t, port)): Promise<Client> => {
    (await client).send(late.subarray(0, length));
    return client;
  };
  const pending = await connect(t, port);
  pending.send(message({ body: inJson(MOSS) }), late.subarray(0, 20));
  await gated.untilArrived(1);
  const slow = await connect(t, port);
  slow.send('POST /plants?');
  const trickle = setInterval(() => slow.send('x'), 10);
  t.teardown(() => clearInterval(trickle));
  const clients = {
    'no head': [await begin(0), 0],
    'a part of a head': [await begin(20), 20],
    'a head that comes byte by byte': [slow, 0],
    'a part of a second head': [await begin(20, usedClient(t, port)), 20],
    'a part of a body': [await begin(late.length - 5), late.length],
  } as const;
  for (const [what, [client, sent]] of Object.entries(clients)) {
    client.socket.allowHalfOpen = true;
    expectFailure(
      t,
      await client.answer(),
      { status: 408, headers: { connection: 'close' } },
      what,
    );
    client.send(late.subarray(sent), late);
    await expectAlive(t, await connect(t, port), 'the server');
    client.socket.end();
    await client.closed;
  }
  // By now, the second head on this connection is too late, too.
  pending.send(late.subarray(20), late);
  await expectAlive(t, await connect(t, port), 'the server');
  gated.letGo();
  await expectNext(t, pending, [200, 408], 'behind a plant that is pending');
  t.equal(timeouts.args()[0]?.[0], SHORT_TIMES.handshakeTimeout);
  await handshake.closed;
  t.notOk(plants.has(IVY.id), 'nothing that arrives after a 408 is stored');
});

t.test('a request that arrives while the process is blocked counts as in time', async (t) => {
  const timeoutMs = 100;
  const limits = {
    headersTimeout: timeoutMs,
    requestTimeout: timeoutMs,
    connectionsCheckingInterval: 10,
  };
  for (const [name, value] of Object.entries(limits))
    t.intercept(CONNECTION_LIMITS, name as keyof typeof limits, { value, enumerable: true });
  const server = await start(t);
  const request = message();
  const bodyAt = request.indexOf('\r\n\r\n') + 4;
  /** How much of the request the server has before the process is blocked. */
  const lengths = {
    nothing: 0,
    'a part of the head': 20,
    'the head': bodyAt,
    'all but a byte': -1,
  };
  for (const [about, length] of Object.entries(lengths))
    for (const isUsed of [false, true]) {
      let client: Client;
      let started: number;
      do {
        client = isUsed ? await usedClient(t, server.port) : await connect(t, server.port);
        started = performance.now();
        client.send(request.subarray(0, length));
        // An answer on another connection shows that the server has read what was sent before.
        (await usedClient(t, server.port)).socket.destroy();
      } while (performance.now() - started > timeoutMs);
      await setImmediate();
      client.send(request.subarray(length));
      // The next phase of the event loop runs the timers, and sockets are read after it.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, timeoutMs + 50);
      t.match(await client.answer(), { status: 200 }, `${about}, ${isUsed ? 'used' : 'new'}`);
      await expectAlive(t, client, about);
    }
});

/** References to the requests or connections that arrive, which do not keep them in memory. */
function watch(t: Test, channel: string, member: 'request' | 'socket'): WeakRef<object>[] {
  const seen: WeakRef<object>[] = [];
  listenTo(t, channel, (message) => {
    seen.push(new WeakRef((message as Record<typeof member, object>)[member]));
  });
  return seen;
}

async function collectGarbage(): Promise<void> {
  // Every response is closed by now, but what has just run may still be on the stack.
  await setImmediate();
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
}

t.test('neither an idle connection nor one that has ended holds memory', async (t) => {
  const requests = watch(t, 'http.server.request.start', 'request');
  const sockets = watch(t, 'net.server.socket', 'socket');
  const server = await start(t);
  const client = await usedClient(t, server.port);
  await collectGarbage();
  t.equal(requests[0]?.deref(), undefined);
  await expectAlive(t, client, 'the connection is still open');
  while ((await server.countConnections()).open > 0) await setImmediate();
  await collectGarbage();
  t.equal(sockets[0]?.deref(), undefined);
});

t.test(
  'a connection is kept for keepAliveMs after a response, and closed soon after',
  async (t) => {
    let now = 0;
    t.intercept(performance, 'now', { value: () => now });
    mock.timers.enable({ apis: ['setInterval'] });
    t.teardown(() => mock.timers.reset());
    const store = gatedStore();
    const server = await start(t, { store, keepAliveMs: 5_000 });
    const refuses = async (client: Client): Promise<void> => {
      client.send(message(wrongToken));
      await expectNext(t, client, [401], 'on an open connection');
    };
    const sweepAt = async (ms: number): Promise<void> => {
      now = ms;
      mock.timers.tick(1_000);
      await setImmediate();
    };
    const connected = () => connect(t, server.port);
    const [idle, used, slow, busy, unused, arriving, late, silent] = [
      await connected(),
      await connected(),
      await connected(),
      await connected(),
      await connected(),
      await connected(),
      await connected(),
      await connected(),
    ];
    const answered = [idle, used, slow, busy, arriving, late, silent];
    for (const client of answered) await refuses(client);
    busy.send(message());
    await store.untilArrived(1);
    await sweepAt(5_000);
    slow.send(message(wrongToken).subarray(0, 20));
    // node:http ignores an empty line before a request (RFC 9112, section 2.2), and limits no time.
    for (const client of [late, silent]) client.send('\r\n');
    // An answer on another connection shows that the server has read what was sent before.
    await refuses(used);
    // The timer expires before the next phase in which sockets are read, as after a pause of the
    // process.
    await setImmediate();
    arriving.send(message(wrongToken));
    await sweepAt(5_001);
    await expectNext(t, arriving, [401], 'a request that had arrived');
    await expectEnd(t, idle, 'idle for too long');
    for (const client of [used, unused]) await refuses(client);
    slow.send(message(wrongToken).subarray(20));
    await expectNext(t, slow, [401], 'a head that had begun to arrive');
    store.letGo();
    t.match(await busy.answer(), { status: 200 }, 'a request in flight');
    // Longer than a head would have been allowed to take.
    await sweepAt(18_000);
    await refuses(late);
    await sweepAt(18_001);
    await expectEnd(t, silent, 'an empty line, and no head');
  },
);

t.test('stop accepts no connections, and closes those that are idle', async (t) => {
  // The last stages of a stop would close these connections, too.
  t.intercept(STOP_TIMES, 'requestsMs', { value: 2 ** 30 });
  const server = await start(t);
  const { port } = server;
  const used = await usedClient(t, port);
  const [unused, half] = [await connect(t, port), await connect(t, port)];
  half.send(message().subarray(0, 20));
  await server.stop();
  for (const [what, client] of Object.entries({ used, unused, half }))
    await expectEnd(t, client, what);
  await t.rejects(connect(t, port), { code: 'ECONNREFUSED' });
});

t.test('a TLS handshake that ends during a stop leaves time for a request', async (t) => {
  mock.timers.enable({ apis: ['setInterval'] });
  t.teardown(() => mock.timers.reset());
  const tls = tlsMaterial();
  const server = await start(t, { tls });
  const { socket } = await connect(t, server.port);
  while ((await server.countConnections()).open === 0) await setImmediate();
  const stopped = server.stop();
  const client = connectSecurely({ socket, ca: tls.cert, servername: 'localhost' });
  // A ticket follows a handshake that the server has completed.
  await once(client, 'session');
  mock.timers.tick(STOP_TIMES.idleMs);
  await setImmediate();
  client.end(message());
  t.match(await text(client), /^HTTP\/1\.1 200 OK\r\n/);
  await stopped;
});

t.test('stop answers requests in flight or on their way, as the last ones', async (t) => {
  const store = gatedStore();
  const server = await start(t, { store });
  const refusedBefore = async (...bytes: readonly Buffer[]): Promise<Client> => {
    const client = await connect(t, server.port);
    client.send(inOnePacket(message(wrongToken), ...bytes));
    await expectNext(t, client, [401], 'before');
    return client;
  };
  const several = await refusedBefore(message(), message());
  const sending = await refusedBefore(message().subarray(0, -1));
  const [later, idle] = [await refusedBefore(), await refusedBefore()];
  await store.untilArrived(2);
  const stopped = server.stop();
  sending.send(message().subarray(-1));
  // The second request is not processed.
  later.send(inOnePacket(message(), message()));
  await store.untilArrived(4);
  await expectEnd(t, idle, 'an idle connection, when all are checked');
  store.letGo();
  t.match(await several.answer(), { status: 200, headers: { connection: 'keep-alive' } });
  for (const [what, client] of Object.entries({ several, sending, later })) {
    t.match(await client.answer(), { status: 200, headers: { connection: 'close' } }, what);
    await expectEnd(t, client, what);
  }
  await stopped;
});

t.test('a client that does not read its answer delays no stop beyond 8.5 s', async (t) => {
  mock.timers.enable({ apis: ['setTimeout', 'setInterval'] });
  t.teardown(() => mock.timers.reset());
  const handler: PlantServerOptions['handler'] = async (_req, res) => void res.end(LARGE);
  const server = await startPlantServer(t, { handler });
  const client = await connect(t, server.port);
  client.send(message());
  await once(client.socket, 'data');
  client.socket.pause();
  let hasStopped = false;
  const stopped = server.stop().then(() => (hasStopped = true));
  mock.timers.tick(8_499);
  await setImmediate();
  t.notOk(hasStopped);
  mock.timers.tick(1);
  await stopped;
  client.socket.resume();
  await client.closed;
});

t.test('a request that is in flight when the time of stop is up gets a 503', async (t) => {
  const store = gatedStore();
  const server = await start(t, { store });
  const stored = await connect(t, server.port);
  stored.send(message());
  /** Sends a head, waits until the server has received it, and sends a part of the body. */
  const beginning = async (head: Message, part: string | Buffer): Promise<Client> => {
    const client = await connect(t, server.port);
    client.send(waiting(head));
    t.match(await client.answer(), { status: 100 });
    client.send(part);
    return client;
  };
  const declared = { 'Content-Length': String(Buffer.byteLength(FERN_JSON)) };
  const sending = await beginning({ headers: declared }, FERN_JSON.slice(0, -1));
  const sendingChunks = await beginning({ headers: CHUNKED }, chunk(FERN_JSON));
  await store.untilArrived(1);
  t.intercept(STOP_TIMES, 'requestsMs', { value: 1 });
  const stopped = server.stop();
  const unavailable = { status: 503, headers: { connection: 'close', 'retry-after': '1' } };
  for (const [what, client] of Object.entries({ stored, sending, sendingChunks }))
    await expectNext(t, client, [unavailable], what);
  await stopped;
  for (const [what, client] of Object.entries({ stored, sending, sendingChunks }))
    await expectEnd(t, client, what);
});
