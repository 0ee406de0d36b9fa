import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { createServer, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setImmediate } from 'node:timers/promises';

import t from 'tap';

import { createListener, MAX_IGNORED_REQUESTS } from '../../dist/program/listener.js';
import { chunkedMessage, connect, FERN, message } from '../client.js';
import { exactly } from '../exactly.js';
import { LISTENER, listen } from '../service.js';
import { gatedStore } from '../stores.js';
import {
  APPLICATIONS,
  chunked,
  connectSocket,
  LISTENERS,
  listener,
  makeService,
  MAX_BODY_BYTES,
  parseResponses,
  plant,
  sendPlainly,
  sendSecurely,
  serveAnother,
} from './support.js';

/*
 * RFC 9112, section 9.6: after a response with `Connection: close`, a server must not process any
 * further request on that connection. The requests here come in one packet, so the later ones have
 * arrived before the response is sent. The program keeps this; in an application, node:http passes these requests on.
 */

const http10 = (request: Buffer): Buffer =>
  Buffer.from(request.toString().replace('HTTP/1.1', 'HTTP/1.0'));

/** Requests whose response closes the connection. */
const REFUSED: Readonly<Record<string, readonly [error: number, request: Buffer]>> = {
  'a transfer coding other than chunked': [
    501,
    chunked({ headers: { 'Transfer-Encoding': 'gzip, chunked' } }),
  ],
  'no token': [401, chunked({ headers: { Authorization: undefined } })],
  'no token, another path': [401, chunked({ target: '/x', headers: { Authorization: undefined } })],
  'a wrong token': [401, chunked({ headers: { Authorization: 'Bearer other' } })],
  'an unknown path': [404, chunked({ target: '/x' })],
  'another method': [405, chunked({ method: 'PUT' })],
  'another media type': [415, chunked({ headers: { 'Content-Type': 'text/plain' } })],
  'a content coding': [415, chunked({ headers: { 'Content-Encoding': 'gzip' } })],
  'two Authorization': [400, chunked({ headers: { Authorization: ['Bearer a', 'Bearer b'] } })],
  'two Host': [400, chunked({ headers: { Host: ['localhost', 'other'] } })],
  'a Host outside its grammar': [400, chunked({ headers: { Host: 'a/b' } })],
  'no token, and waiting for 100': [
    401,
    message({ headers: { Authorization: undefined, Expect: '100-continue' } }),
  ],
  'another expectation': [417, chunked({ headers: { Expect: '200-ok' } })],
  'HTTP/1.0 with a transfer coding': [
    400,
    http10(chunked({ headers: { Connection: 'keep-alive' } })),
  ],
};

for (const [name, { start, secure }] of Object.entries(LISTENERS))
  t.test(`${name}: no request is processed after a response that closes`, async (t) => {
    const send = secure ? sendSecurely : sendPlainly(t);
    for (const [about, [error, request]] of Object.entries(REFUSED)) {
      const { handler, stored } = makeService();
      const port = await start(t, handler);
      const received = await send(port, Buffer.concat([request, plant(2), plant(3)]));
      t.match(parseResponses(received), exactly({ error, closes: true }), about);
      t.notOk(stored.includes(2n) || stored.includes(3n), `${about}: nothing else is stored`);
    }
  });

t.test('in an application, requests behind the last response do not end the process', async (t) => {
  const refused = chunked({ headers: { Authorization: undefined } });
  for (const { start, secure } of Object.values(APPLICATIONS))
    for (let turns = 0; turns < 5; turns++) {
      const { handler } = makeService();
      const port = await start(t, handler);
      const socket = await connectSocket(port, secure);
      let received = '';
      socket.on('data', (data) => (received += String(data))).on('error', () => undefined);
      const closed = new Promise((resolve) => socket.once('close', resolve));
      socket.write(Buffer.concat([refused, plant(2), plant(3)]));
      // More requests arrive before, while or after the server closes the connection.
      for (let turn = 0; turn < turns; turn++) await setImmediate();
      for (const id of [4, 5, 6, 7]) socket.write(plant(id));
      await closed;
      // None if the connection was reset.
      t.ok(parseResponses(received).length <= 1);
      await serveAnother(port, secure);
    }
});

t.test('a request before the one with the final response is processed', async (t) => {
  const { handler, stored } = makeService();
  const port = await listener(t, handler);
  const refused = chunked({ headers: { Authorization: undefined } });
  const requests = [plant(1), plant(2), refused, plant(3), refused, plant(4)];
  const received = parseResponses(await sendPlainly(t)(port, Buffer.concat(requests)));
  t.strictSame(
    received.map(({ status, closes }) => [status, closes]),
    [
      [200, false],
      [200, false],
      [401, true],
    ],
  );
  t.strictSame(stored, [1n, 2n]);
});

t.test('requests behind the last response are read, but take no memory', async (t) => {
  const gated = gatedStore();
  const { handler, stored } = makeService(gated);
  const port = await listener(t, handler);
  const last = Buffer.concat([plant(1), chunked({ headers: { Authorization: undefined } })]);
  const small = (count: number): string => 'GET / HTTP/1.1\r\n\r\n'.repeat(count);
  let requests = 0;
  const onRequest = (): void => {
    requests++;
  };
  subscribe('http.server.request.start', onRequest);
  t.teardown(() => unsubscribe('http.server.request.start', onRequest));

  const client = await connect(t, port);
  client.send(last);
  await gated.arrived(1);
  // Larger than all buffers of the system.
  const flushed = new Promise((resolve) => client.socket.write(small(1_000_000), resolve));
  await flushed;
  t.ok(requests < MAX_IGNORED_REQUESTS, 'only what is read at once is parsed');

  const another = await connect(t, port);
  another.send(Buffer.concat([last, Buffer.from(small(3_000))]));
  const third = await connect(t, port);
  third.send(Buffer.concat([last, Buffer.from(small(3_000))]));
  await Promise.race([another.closed, third.closed]);
  gated.letGo();
  t.equal((await client.answer()).status, 200);
  t.equal((await client.answer()).status, 401);
  await client.closed;
  t.strictSame(new Set(stored), new Set([1n]));
});

t.test('a connection stays open once a chunked body has been read', async (t) => {
  const { handler, stored } = makeService();
  const port = await listener(t, handler);
  const client = await connect(t, port);
  client.send(Buffer.concat([chunked({ body: 'x' }), chunked({ body: '{}' }), plant(1)]));
  for (const status of [400, 400, 200]) {
    const answer = await client.answer();
    t.match(answer, { status, headers: { connection: 'keep-alive' } });
  }
  t.strictSame(stored, [1n]);
});

t.test('refusing a request that has arrived completely keeps the connection', async (t) => {
  const { handler, stored } = makeService();
  const server = createServer(handler);
  // With this listener, node:http parses all of a packet before the handler sees the first body.
  server.on('connection', (socket: Socket) => socket.on('data', () => undefined));
  const client = await connect(t, await listen(t, server));
  client.send(Buffer.concat([chunkedMessage('x'.repeat(MAX_BODY_BYTES + 1), 'x'), plant(2)]));
  t.match(await client.answer(), { status: 400, headers: { connection: 'keep-alive' } });
  t.match(await client.answer(), { status: 200, headers: { connection: 'keep-alive' } });
  t.strictSame(stored, [2n]);
});

t.test('while the program stops, each connection processes one more request', async (t) => {
  const { handler, stored } = makeService();
  const stopping = createListener({ handler, ...LISTENER });
  const port = Number(new URL(await stopping.listen('127.0.0.1', 0)).port);
  const { socket } = await connect(t, port);
  const received = text(socket);
  const stopped = stopping.stop(60_000);
  socket.write(Buffer.concat([plant(1), plant(2), plant(3)]));
  t.match(parseResponses(await received), exactly({ status: 200, closes: true }));
  t.strictSame(stored, [1n]);
  await stopped;
});

t.test(
  'a request behind one that was in flight when stop was called is not processed',
  async (t) => {
    const gated = gatedStore();
    const { handler, stored } = makeService(gated);
    const stopping = createListener({ handler, ...LISTENER });
    const port = Number(new URL(await stopping.listen('127.0.0.1', 0)).port);
    const client = await connect(t, port);
    client.send(plant(1));
    await gated.arrived(1);
    const stopped = stopping.stop(60_000);
    client.send(plant(2));
    // The server has read the second request by the end of the next turn.
    await setImmediate().then(() => setImmediate());
    gated.letGo();
    t.match(await client.answer(), { status: 200, headers: { connection: 'close' } });
    await client.closed;
    await stopped;
    t.strictSame(stored, [1n]);
  },
);

t.test('an application can set Connection: close on a response', async (t) => {
  const closings: Readonly<Record<string, (res: ServerResponse) => unknown>> = {
    'by a header': (res) => res.setHeader('Connection', 'close'),
    'by shouldKeepAlive': (res) => (res.shouldKeepAlive = false),
  };
  for (const [about, close] of Object.entries(closings)) {
    const { handler } = makeService();
    const server = createServer((req, res) => {
      close(res);
      void handler(req, res);
    });
    const received = await sendPlainly(t)(await listen(t, server), plant(1));
    t.match(parseResponses(received), exactly({ status: 200, closes: true }), about);
  }
});

t.test('requests are processed after an application sets Connection: keep-alive', async (t) => {
  const { handler, stored } = makeService();
  const server = createServer((req, res) => {
    res.setHeader('Connection', 'keep-alive');
    void handler(req, res);
  });
  const client = await connect(t, await listen(t, server));
  client.send(plant(1), plant(2));
  t.match(await client.answer(), { status: 200 });
  t.match(await client.answer(), { status: 200 });
  t.strictSame(stored, [1n, 2n]);
});

t.test('no request is processed after one with Connection: close', async (t) => {
  const { handler, stored } = makeService();
  const port = await listener(t, handler);
  const last = message({ headers: { Connection: 'close' }, body: FERN });
  const received = await sendPlainly(t)(port, Buffer.concat([last, plant(2)]));
  t.match(parseResponses(received)[0], { status: 200, closes: true });
  t.strictSame(stored, [7n]);
});
