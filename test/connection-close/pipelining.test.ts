import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { text } from 'node:stream/consumers';
import { setImmediate } from 'node:timers/promises';

import t from 'tap';

import { createListener, MAX_IGNORED_REQUESTS } from '../../dist/program/listener.js';
import { connect, FERN, message } from '../client.js';
import { exactly } from '../exactly.js';
import { LISTENER } from '../service.js';
import { gatedStore } from '../stores.js';
import {
  APPLICATIONS,
  chunked,
  connectSocket,
  LISTENERS,
  listener,
  makeService,
  parseResponses,
  plant,
  serveAnother,
} from './support.js';

/*
 * RFC 9112, section 9.6: after a response with `Connection: close`, a server must not process any
 * further request on that connection. The requests here come in one packet, so the later ones have
 * arrived before the response is sent. The program keeps this; in an application, node:http passes these requests on.
 */

const NO_TOKEN = chunked({ headers: { Authorization: undefined } });

const http10 = (request: Buffer): Buffer =>
  Buffer.from(request.toString().replace('HTTP/1.1', 'HTTP/1.0'));

/** Requests whose response closes the connection: the handler refuses them before their bodies have arrived. */
const REFUSED: Readonly<Record<string, readonly [error: number, request: Buffer]>> = {
  'a transfer coding other than chunked': [
    501,
    chunked({ headers: { 'Transfer-Encoding': 'gzip, chunked' } }),
  ],
  'no token': [401, NO_TOKEN],
  'another media type': [415, chunked({ headers: { 'Content-Type': 'text/plain' } })],
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
    const { handler, stored } = makeService();
    const port = await start(t, handler);
    for (const [about, [error, request]] of Object.entries(REFUSED)) {
      const socket = await connectSocket(port, secure);
      socket.write(Buffer.concat([request, plant(2), plant(3)]));
      t.match(parseResponses(await text(socket)), exactly({ error, closes: true }), about);
      t.strictSame(stored, [], `${about}: nothing else is stored`);
    }
  });

t.test('in an application, requests behind the last response do not end the process', async (t) => {
  const { handler } = makeService();
  for (const { start, secure } of Object.values(APPLICATIONS)) {
    const port = await start(t, handler);
    for (let turns = 0; turns < 5; turns++) {
      const socket = await connectSocket(port, secure);
      let received = '';
      socket.on('data', (data) => (received += String(data))).on('error', () => undefined);
      const closed = new Promise((resolve) => socket.once('close', resolve));
      socket.write(Buffer.concat([NO_TOKEN, plant(2), plant(3)]));
      // More requests arrive before, while or after the server closes the connection.
      for (let turn = 0; turn < turns; turn++) await setImmediate();
      for (const id of [4, 5, 6, 7]) socket.write(plant(id));
      await closed;
      // None if the connection was reset.
      t.ok(parseResponses(received).length <= 1);
      await serveAnother(port, secure);
    }
  }
});

t.test('a request before the one with the final response is processed', async (t) => {
  const { handler, stored } = makeService();
  const socket = await connectSocket(await listener(t, handler));
  socket.write(Buffer.concat([plant(1), plant(2), NO_TOKEN, plant(3), NO_TOKEN, plant(4)]));
  t.match(
    parseResponses(await text(socket)),
    exactly({ status: 200 }, { status: 200 }, { status: 401, closes: true }),
  );
  t.strictSame(stored, [1n, 2n]);
});

t.test('requests behind the last response are read, but take no memory', async (t) => {
  const gated = gatedStore();
  const { handler, stored } = makeService(gated);
  const port = await listener(t, handler);
  const last = Buffer.concat([plant(1), NO_TOKEN]);
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

t.test('while the program stops, each connection processes one more request', async (t) => {
  const { handler, stored } = makeService();
  const stopping = createListener({ handler, ...LISTENER });
  const socket = await connectSocket(Number(new URL(await stopping.listen('127.0.0.1', 0)).port));
  const stopped = stopping.stop(60_000);
  socket.write(Buffer.concat([plant(1), plant(2), plant(3)]));
  t.match(parseResponses(await text(socket)), exactly({ status: 200, closes: true }));
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

t.test('no request is processed after one with Connection: close', async (t) => {
  const { handler, stored } = makeService();
  const socket = await connectSocket(await listener(t, handler));
  const last = message({ headers: { Connection: 'close' }, body: FERN });
  socket.write(Buffer.concat([last, plant(2)]));
  t.match(parseResponses(await text(socket)), exactly({ status: 200, closes: true }));
  t.strictSame(stored, [7n]);
});
