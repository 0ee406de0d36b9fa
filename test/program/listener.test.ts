import { subscribe, unsubscribe, type ChannelListener } from 'node:diagnostics_channel';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { connect as connectTo, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setImmediate } from 'node:timers/promises';
import { connect as connectSecurely } from 'node:tls';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import t, { type Test } from 'tap';

import { createPlantHandler } from '../../dist/http/handler.js';
import { MAX_HEADER_LINES } from '../../dist/http/limits.js';
import {
  CONNECTION_LIMITS,
  createListener,
  type Listener,
  type ListenerOptions,
} from '../../dist/program/server/listener.js';
import type { Report } from '../../dist/report.js';
import type { PlantStore } from '../../dist/store.js';
import { selfSigned } from '../certificate.js';
import {
  chunk,
  CHUNKED,
  chunkedMessage,
  connect,
  FERN,
  isFailure,
  message,
  type Message,
  TOKEN,
  type Client,
  type Expected,
} from '../client.js';
import { LISTENER } from '../service.js';
import { gatedStore } from '../stores.js';

/** A store that takes every plant at once. */
const takesAll: PlantStore = {
  add: () => Promise.resolve('created'),
  close: () => Promise.resolve(),
};

interface Options extends Partial<ListenerOptions> {
  readonly store?: PlantStore;
  readonly host?: string;
}

async function listen(
  t: Test,
  { store = takesAll, host = '127.0.0.1', ...options }: Options = {},
): Promise<Listener & { readonly url: string; readonly port: number }> {
  const handler = createPlantHandler({ store, tokens: [TOKEN] });
  const listener = createListener({ handler, ...LISTENER, ...options });
  const url = await listener.listen(host, 0);
  t.teardown(() => listener.stop(0));
  return { ...listener, url, port: Number(new URL(url).port) };
}

/** What an answer is expected to be: a failure by its status, or a plant. */
type Answers = readonly (number | Expected)[];

/** Checks the next answers on a connection. */
async function answers(t: Test, client: Client, expected: Answers, about: string): Promise<void> {
  for (const each of expected) {
    const answer = await client.answer();
    if (each === 200) t.match(answer, { status: 200, body: /^\{"name":"/ }, about);
    else isFailure(t, answer, typeof each === 'number' ? { status: each } : each, about);
  }
}

/** Checks that a connection ends, and that nothing else comes on it before. */
async function ends(t: Test, client: Client, about: string): Promise<void> {
  await client.closed;
  await t.rejects(client.answer(), { message: 'closed after 0 bytes of an answer' }, about);
}

/** Checks that a connection can be used again. */
async function lives(t: Test, client: Client, about: string): Promise<void> {
  client.send(message());
  await answers(t, client, [200], `${about}: the next request is answered`);
  client.socket.destroy();
}

/** The bytes that a client sends, and the answers that it gets. */
type Table = Record<string, readonly [bytes: string | Buffer, ...expected: Answers]>;

/** Tries each line of a table on a connection of its own. */
async function tryAll(
  t: Test,
  table: Table,
  { after, finish = false }: { after: typeof ends; finish?: boolean },
): Promise<void> {
  const { port } = await listen(t);
  for (const [what, [bytes, ...expected]] of Object.entries(table)) {
    const client = await connect(t, port);
    client.send(bytes);
    if (finish) client.socket.end();
    await answers(t, client, expected, what);
    await after(t, client, what);
  }
}

/** A request with another header line. */
const withLine = (line: string, request = message()): string =>
  request.toString().replace('\r\n', `\r\n${line}\r\n`);

const without = (name: string, request = message()): string =>
  request.toString().replace(new RegExp(`${name}: .*\r\n`), '');

/** A request in chunks of which the body is not well-formed. */
const withChunks = (chunks: string, headers: Message['headers'] = {}): Buffer =>
  message({
    headers: { ...CHUNKED, ...headers },
    body: chunks,
  });

const lines = (count: number): string => Array(count).fill('X: x').join('\r\n');

const wrongToken = { headers: { Authorization: 'Bearer wrong' } };
const LAST_CHUNK = '0\r\n\r\n';
const LONG = 'x'.repeat(CONNECTION_LIMITS.maxHeaderSize);
/** Longer than the parser of node:http accepts: 16 KiB. */
const EXTENSION = 'x'.repeat(20_000);

t.test('bytes that are not HTTP get a 400, and the connection is closed', async (t) => {
  await tryAll(
    t,
    {
      'a line of text': ['hello\r\n\r\n', 400],
      'one byte': ['\0', 400],
      TLS: [Buffer.from('16030100', 'hex'), 400],
      'HTTP/2': ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400],
      'a space before the method': [` ${message().toString()}`, 400],
      'a method in lower case': [message({ method: 'post' }), 400],
      'a method that nobody knows': [message({ method: 'BREW' }), 400],
      'a version that nobody knows': [message().toString().replace('HTTP/1.1', 'HTTP/1.2'), 400],
      'lines that end in LF alone': [message().toString().replaceAll('\r\n', '\n'), 400],
      'a header line without a colon': [withLine('hello'), 400],
      'a header line without a name': [withLine(': x'), 400],
      'a space before the colon': [withLine('X : x'), 400],
      'a header line that is folded': [withLine('X: x\r\n x'), 400],
      'a NUL in a header line': [withLine('X: \0'), 400],
      'a length that is no number': [message({ headers: { 'Content-Length': 'x' } }), 400],
      'a length below 0': [message({ headers: { 'Content-Length': '-1' } }), 400],
      'a length with a sign': [message({ headers: { 'Content-Length': '+44' } }), 400],
      'two lengths': [message({ headers: { 'Content-Length': ['44', '45'] } }), 400],
      'a length and chunks': [message({ headers: { 'Transfer-Encoding': 'chunked' } }), 400],
      'a chunk whose size is no number': [withChunks(`x\r\n${FERN}`), 400],
      'a chunk that is longer than it says': [withChunks(`1\r\n${FERN}`), 400],
      'a bad chunk after a good one': [withChunks(`1\r\n{\r\nx\r\n`), 400],
    },
    { after: ends },
  );
});

t.test('an incomplete request is answered with 400', async (t) => {
  await tryAll(
    t,
    {
      'in the request line': ['POST /pl', 400],
      'in a header line': [message().subarray(0, 40), 400],
      'in a body': [message().subarray(0, -1), 400],
      'in a chunk': [chunkedMessage(FERN).subarray(0, -20), 400],
      'before the last chunk': [chunkedMessage(FERN).subarray(0, -LAST_CHUNK.length), 400],
      'in the second request': [Buffer.concat([message(), message().subarray(0, -1)]), 200, 400],
    },
    { after: ends, finish: true },
  );
});

t.test('a request without Host is answered with 400', async (t) => {
  await tryAll(t, { 'no Host': [without('Host'), 400] }, { after: lives });
});

t.test('a header section that is too large is answered with 431', async (t) => {
  const large = {
    'one long line': [withLine(`X: ${LONG}`), 431],
    'many short lines': [withLine(lines(LONG.length / 2)), 431],
    'a long target': [message({ target: `/${LONG}` }), 431],
    'long trailers': [withChunks(`0\r\nX: ${LONG}\r\n\r\n`), 431],
  } as const;
  await tryAll(t, large, { after: ends });
  const longest = LONG.slice(message().length);
  const small = {
    'one line': [withLine(`X: ${longest}`), 200],
    'a target': [message({ target: `/plants?${longest}` }), 200],
  } as const;
  await tryAll(t, small, { after: lives });
});

t.test(`a request may have ${MAX_HEADER_LINES} header lines`, async (t) => {
  const most = withLine(lines(MAX_HEADER_LINES - 4));
  const oneMore = withLine('X: x', Buffer.from(most));
  await tryAll(t, { 'the most': [most, 200], 'one more': [oneMore, 431] }, { after: lives });
});

t.test('chunk extensions are ignored up to a size limit', async (t) => {
  const extended = (length: number): Buffer =>
    withChunks(`${FERN.length.toString(16)};${'x'.repeat(length)}\r\n${FERN}\r\n${LAST_CHUNK}`);
  await tryAll(t, { small: [extended(1_000), 200] }, { after: lives });
  await tryAll(t, { large: [extended(EXTENSION.length), 413] }, { after: ends });
});

t.test('a body whose length cannot be determined is refused', async (t) => {
  const coded = { 'Content-Length': undefined, 'Transfer-Encoding': 'gzip' };
  await tryAll(t, { gzip: [message({ headers: coded }), 501] }, { after: ends });
});

t.test('CONNECT is answered with 405, and the connection is closed', async (t) => {
  const head = 'CONNECT plants:80 HTTP/1.1\r\nHost: plants:80\r\n\r\n';
  const expected = { status: 405, headers: { allow: 'POST' } };
  await tryAll(
    t,
    { alone: [head, expected], early: [`${head}${LONG}`, expected] },
    { after: ends },
  );
});

t.test('a reset connection after CONNECT does not end the program', async (t) => {
  const { port } = await listen(t);
  const client = await connect(t, port);
  client.send('CONNECT plants:80 HTTP/1.1\r\nHost: plants:80\r\n\r\n');
  await client.answer();
  client.socket.resetAndDestroy();
  await client.closed;
  await lives(t, await connect(t, port), 'the server');
});

t.test('an expectation other than 100-continue is answered with 417', async (t) => {
  await tryAll(
    t,
    {
      alone: [withLine('Expect: 200-ok'), 417],
      'beside 100-continue': [withLine('Expect: 100-continue, 200-ok'), 417],
      'after 100-continue': [withLine('Expect: 100-Continue\r\nExpect: 200-ok'), 417],
      'with a wrong token': [withLine('Expect: 200-ok', message(wrongToken)), 417],
      'before another request': [
        `${withLine('Expect: 200-ok')}${message(wrongToken).toString()}`,
        417,
      ],
    },
    { after: ends },
  );
});

t.test('100 Continue is sent if the head of the request is valid', async (t) => {
  const { port } = await listen(t);
  for (const body of [FERN, `{"id":7,"name":"${LONG}"}`]) {
    const client = await connect(t, port);
    const length = String(Buffer.byteLength(body));
    client.send(
      message({ headers: { 'Content-Length': length, Expect: '100-continue' }, body: '' }),
    );
    t.equal((await client.answer()).text, 'HTTP/1.1 100 Continue\r\n\r\n');
    client.send(body);
    await answers(t, client, [200], `${length} bytes`);
    await lives(t, client, `${length} bytes`);
  }
});

t.test('100 Continue is not sent if the head of the request is refused', async (t) => {
  const waiting = (parts: Parameters<typeof message>[0]): string =>
    withLine('Expect: 100-continue', message({ ...parts, body: '' }));
  const goesAway: typeof ends = (t, client, about) => {
    client.socket.end();
    return ends(t, client, about);
  };
  await tryAll(
    t,
    {
      'a wrong token': [waiting(wrongToken), 401],
      'two Host': [waiting({ headers: { Host: ['localhost', 'other'] } }), 400],
      'another path': [waiting({ target: '/plant' }), 404],
      'another method': [waiting({ method: 'PUT' }), 405],
      'another media type': [
        waiting({ headers: { 'Content-Type': 'text/plain' } }),
        { status: 400, error: 415 },
      ],
      'a body that is too large': [
        waiting({ headers: { 'Content-Length': '1048577' } }),
        { status: 400, error: 413 },
      ],
    },
    { after: goesAway },
  );
});

t.test('HTTP/1.0 gets no 100 Continue', async (t) => {
  const request = withLine('Expect: 100-continue').replace('HTTP/1.1', 'HTTP/1.0');
  await tryAll(t, { 'a plant': [request, 200] }, { after: ends });
});

t.test('pipelined requests are answered in order', async (t) => {
  const store = gatedStore();
  const { port } = await listen(t, { store });
  const client = await connect(t, port);
  const others = [message({ target: '/plant' }), message(wrongToken), message({ body: '' })];
  client.send(Buffer.concat([message(), ...others, message()]));
  await store.arrived(2);
  store.letGo();
  await answers(t, client, [200, 404, 401, 400, 200], 'in order');
  await lives(t, client, 'after all');
});

t.test('a complete request before malformed bytes gets its own answer, then the 400', async (t) => {
  const garbage = Buffer.from('x'.repeat(1_000_000));
  const requests: Table = {
    'a plant': [message(), 200],
    'two plants': [Buffer.concat([message(), message()]), 200, 200],
    'a failure': [message(wrongToken), 401],
  };
  for (const [what, [bytes, ...expected]] of Object.entries(requests)) {
    const store = gatedStore();
    const { port } = await listen(t, { store });
    const client = await connect(t, port);
    client.send(bytes, garbage);
    const plants = expected.filter((each) => each === 200).length;
    await store.arrived(plants);
    store.letGo();
    await answers(t, client, [...expected, 400], what);
    await ends(t, client, what);
  }
});

t.test('the failure of an incomplete request waits for the answers before it', async (t) => {
  const requests: Table = {
    'malformed chunk': [withChunks('zz'), 400],
    'large chunk extension': [withChunks(`1;${EXTENSION}`), 413],
    'half a body': [message().subarray(0, -1), 400],
    CONNECT: ['CONNECT plants:80 HTTP/1.1\r\nHost: plants:80\r\n\r\n', 405],
    'refused, then malformed chunk': [withChunks('zz', wrongToken.headers), 401],
  };
  for (const [what, [bytes, ...expected]] of Object.entries(requests)) {
    const store = gatedStore();
    const { port } = await listen(t, { store });
    const client = await connect(t, port);
    client.send(Buffer.concat([message(), message(), Buffer.from(bytes)]));
    await store.arrived(2);
    client.socket.end();
    store.letGo();
    await answers(t, client, [200, 200, ...expected], what);
    await ends(t, client, what);
  }
});

t.test('nothing follows the final answer on a connection that the client ends', async (t) => {
  const last = Buffer.from(withLine('Connection: close'));
  await tryAll(
    t,
    {
      'another request': [Buffer.concat([last, message()]), 200],
      garbage: [Buffer.concat([last, Buffer.from('hello\r\n\r\n')]), 200],
    },
    { after: ends },
  );
});

t.test('a client that half-closes its connection gets all answers', async (t) => {
  const refused = Buffer.concat([message(), message(wrongToken), message()]);
  await tryAll(
    t,
    { nothing: [''], 'a plant': [message(), 200], 'three requests': [refused, 200, 401, 200] },
    { after: ends, finish: true },
  );
});

t.test('a client that keeps sending after a refusal gets the answer, and no reset', async (t) => {
  const { port } = await listen(t);
  const refused: Table = {
    'not HTTP': ['hello\r\n\r\n', 400],
    'a bad chunk': [withChunks('x\r\n'), 400],
    'a large header section': [withLine(`X: ${LONG}`), 431],
    'a large chunk extension': [withChunks(`1;${EXTENSION}`), 413],
    'a wrong token before a bad chunk': [
      Buffer.from(without('Authorization', withChunks(`${LONG}\r\n`))),
      401,
    ],
  };
  for (const [what, [bytes, ...expected]] of Object.entries(refused)) {
    const client = await connect(t, port);
    const errors: Error[] = [];
    client.socket.on('error', (error) => errors.push(error));
    client.send(bytes, Buffer.alloc(4_000_000, 'x'));
    await answers(t, client, expected, what);
    await ends(t, client, what);
    t.strictSame(errors, [], what);
  }
});

t.test('connections beyond the maximum are closed at once', async (t) => {
  const reports: string[] = [];
  const report: Report = (message) => reports.push(message);
  const { port } = await listen(t, { maxConnections: 2, report });
  const [first, second] = [await connect(t, port), await connect(t, port)];
  const third = await connect(t, port);
  await ends(t, third, 'a third');
  t.strictSame(reports, [
    'overloaded: 2 connections are open (PLANT_STORE_MAX_CONNECTIONS), more are closed at once',
  ]);
  await lives(t, first, 'the first');
  await first.closed;
  await lives(t, second, 'the second');
});

t.test('HTTPS is served with a certificate and its key', async (t) => {
  const { cert, key } = selfSigned();
  const tls = { cert: Buffer.from(cert), key: Buffer.from(key) };
  const server = await listen(t, { tls });
  const { url, port } = server;
  t.equal(url, `https://127.0.0.1:${port}`);

  const plain = await connect(t, port);
  plain.send(message());
  await ends(t, plain, 'a client that does not speak TLS');

  const finished = connectSecurely({ port, host: '127.0.0.1', ca: cert, servername: 'localhost' });
  finished.end(message());
  t.match(await text(finished), /^HTTP\/1\.1 200 OK\r\n/, 'to a client that has half-closed');
  await server.stop(60_000);
});

t.test('a connection whose client ends it during the TLS handshake is closed', async (t) => {
  const { cert, key } = selfSigned();
  const server = await listen(t, { tls: { cert: Buffer.from(cert), key: Buffer.from(key) } });
  const { port } = server;
  // Only the limit of a handshake closes this one, before any that begins later.
  const silent = await connect(t, port);
  let isOver = false as boolean;
  void silent.closed.then(() => (isOver = true));

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
    while ((await server.connections()).open > 1 && !isOver) await setImmediate();
    t.notOk(isOver, when);
  }
});

t.test('stop accepts no more connections', async (t) => {
  const server = await listen(t);
  await server.stop(60_000);
  await t.rejects(connect(t, server.port), { code: 'ECONNREFUSED' });
});

/** References to the requests that arrive in this process, which do not keep them in memory. */
function watchRequests(t: Test) {
  const requests: { req: WeakRef<object>; socket: WeakRef<Socket> }[] = [];
  const onRequest: ChannelListener = (message) => {
    const { request } = message as { request: IncomingMessage };
    requests.push({ req: new WeakRef(request), socket: new WeakRef(request.socket) });
  };
  subscribe('http.server.request.start', onRequest);
  t.teardown(() => unsubscribe('http.server.request.start', onRequest));
  return requests;
}

async function collectGarbage(): Promise<void> {
  // Every response is closed by now, but what has just run may still be on the stack.
  await setImmediate();
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
}

t.test('an idle connection does not hold its latest request in memory', async (t) => {
  const requests = watchRequests(t);
  const client = await connect(t, (await listen(t)).port);
  client.send(message());
  await answers(t, client, [200], 'the request');
  await collectGarbage();
  t.equal(requests[0]?.req.deref(), undefined);
  await lives(t, client, 'the connection is still open');
});

t.test('a closed connection that has been idle is not held in memory', async (t) => {
  let checkIdle = (): void => undefined;
  const { setInterval } = globalThis;
  const value = (callback: () => void, ms?: number): NodeJS.Timeout => {
    if (ms === LISTENER.keepAliveMs) checkIdle = callback;
    return setInterval(callback, ms);
  };
  t.intercept(globalThis, 'setInterval', { value });
  const requests = watchRequests(t);
  const { port } = await listen(t);
  const client = await connect(t, port);
  client.send(message());
  await answers(t, client, [200], 'the request');
  checkIdle();
  const closed = once(requests[0]?.socket.deref() ?? client.socket, 'close');
  client.socket.destroy();
  await closed;
  checkIdle();
  await collectGarbage();
  t.equal(requests[0]?.socket.deref(), undefined);
});

t.test('stop closes idle connections', async (t) => {
  const server = await listen(t);
  const used = await connect(t, server.port);
  used.send(message());
  await answers(t, used, [200], 'before');
  const unused = await connect(t, server.port);
  const half = await connect(t, server.port);
  half.send(message().subarray(0, 20));
  await server.stop(60_000);
  for (const [what, client] of Object.entries({ used, unused, half })) await ends(t, client, what);
});

t.test('stop answers requests in flight, with Connection: close', async (t) => {
  const store = gatedStore();
  const server = await listen(t, { store });
  const one = await connect(t, server.port);
  one.send(message());
  const several = await connect(t, server.port);
  several.send(Buffer.concat([message(), message()]));
  const sending = await connect(t, server.port);
  sending.send(message(wrongToken));
  await answers(t, sending, [401], 'before');
  sending.send(message().subarray(0, -1));
  await store.arrived(3);
  const stopped = server.stop(60_000);
  sending.send(message().subarray(-1));
  await store.arrived(4);
  store.letGo();
  const last = { status: 200, headers: { connection: 'close' } };
  t.match(await one.answer(), last);
  t.match(await several.answer(), { status: 200, headers: { connection: 'keep-alive' } });
  t.match(await several.answer(), last);
  t.match(await sending.answer(), last);
  await stopped;
  for (const [what, client] of Object.entries({ one, several, sending }))
    await ends(t, client, what);
});

t.test('a request that was on its way when stop was called is answered', async (t) => {
  const server = await listen(t);
  const client = await connect(t, server.port);
  client.send(message());
  await answers(t, client, [200], 'before');
  const stopped = server.stop(60_000);
  client.send(message());
  t.match(await client.answer(), { status: 200, headers: { connection: 'close' } });
  await ends(t, client, 'after it');
  await stopped;
});

t.test('a request that is in flight when the time of stop is up gets a 503', async (t) => {
  const store = gatedStore();
  const server = await listen(t, { store });
  const waiting = await connect(t, server.port);
  waiting.send(message());
  const sending = await connect(t, server.port);
  const sendingChunks = await connect(t, server.port);
  const framings = [
    [sending, {}],
    [sendingChunks, CHUNKED],
  ] as const;
  for (const [client, framing] of framings) {
    const headers = { ...framing, Expect: '100-continue' };
    client.send(message({ headers }).subarray(0, -Buffer.byteLength(FERN)));
    t.match(await client.answer(), { status: 100 }, 'the server has received the head');
  }
  sending.send(FERN.slice(0, -1));
  sendingChunks.send(chunk(FERN));
  await store.arrived(1);
  const stopped = server.stop(1);
  const unavailable = { status: 503, headers: { connection: 'close', 'retry-after': '1' } };
  for (const [what, client] of Object.entries({ waiting, sending, sendingChunks }))
    await answers(t, client, [unavailable], what);
  await stopped;
  for (const [what, client] of Object.entries({ waiting, sending, sendingChunks }))
    await ends(t, client, what);
});

t.test('a connection whose latest request is in flight is not idle', async (t) => {
  const store = gatedStore();
  const server = await listen(t, { store });
  const idle = await connect(t, server.port);
  idle.send(message(wrongToken));
  await answers(t, idle, [401], 'before');
  const client = await connect(t, server.port);
  client.send(Buffer.concat([message(wrongToken), message()]));
  await answers(t, client, [401], 'an earlier request');
  await store.arrived(1);
  const stopped = server.stop(60_000);
  await ends(t, idle, 'an idle connection is closed');
  store.letGo();
  t.match(await client.answer(), { status: 200, headers: { connection: 'close' } });
  await stopped;
});

t.test('a client may connect and disconnect without sending a request', async (t) => {
  const { port } = await listen(t);
  const socket = connectTo(port, '127.0.0.1');
  await once(socket, 'connect');
  socket.resetAndDestroy();
  await lives(t, await connect(t, port), 'the server');
});
