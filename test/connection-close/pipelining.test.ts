import { createServer, type RequestListener } from 'node:http';
import type { Server, Socket } from 'node:net';
import { text } from 'node:stream/consumers';

import express from 'express';
import t from 'tap';

import { type PlantHandler } from '../../dist/index.js';
import { createListener } from '../../dist/program/listener.js';
import { chunkedMessage, connect, FERN, message } from '../client.js';
import { exactly } from '../exactly.js';
import { LISTENER, listen } from '../service.js';
import { gatedStore } from '../stores.js';
import {
  chunked,
  SERVERS,
  listener,
  makeService,
  MAX_BODY_BYTES,
  parseResponses,
  plant,
  sendPlainly,
  sendSecurely,
} from './support.js';

/*
 * RFC 9112, section 9.6: after a response with `Connection: close`, a server must not process any
 * further request on that connection. The requests here come in one packet, so the later ones have
 * arrived before the response is sent.
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
  'a Host outside its grammar': [400, chunked({ headers: { Host: 'h:1:2' } })],
  'no token, and waiting for 100': [
    401,
    message({ headers: { Authorization: undefined, Expect: '100-continue' } }),
  ],
  'HTTP/1.0 with a transfer coding': [
    400,
    http10(chunked({ headers: { Connection: 'keep-alive' } })),
  ],
};

/** Not answered by the handler, but by the application, if that is not the program's listener. */
const EXPECTATION = [417, chunked({ headers: { Expect: '200-ok' } })] as const;

for (const [name, { start, secure, isListener, passesOn }] of Object.entries(SERVERS))
  t.test(`${name}: no request is processed after a response that closes`, async (t) => {
    const send = secure ? sendSecurely : sendPlainly(t);
    const rows = { ...REFUSED, ...(isListener && { 'another expectation': EXPECTATION }) };
    for (const [about, [error, request]] of Object.entries(rows)) {
      // With `next`, another path is the application's.
      if (passesOn && about.includes('path')) continue;
      const { handler, stored } = makeService();
      const port = await start(t, handler);
      const received = await send(port, Buffer.concat([request, plant(2), plant(3)]));
      t.match(parseResponses(received), exactly({ error, closes: true }), about);
      t.notOk(stored.includes(2n) || stored.includes(3n), `${about}: nothing else is stored`);
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

t.test(
  'an earlier request that the application passes to the handler later is processed',
  async (t) => {
    const { handler, stored } = makeService();
    const isPassedOn: Promise<void>[] = [];
    const server = createServer((req, res) => {
      // The first request waits until the handler has refused the second one.
      if (isPassedOn.length === 0)
        isPassedOn.push(new Promise((resolve) => setImmediate(() => setImmediate(resolve))));
      else {
        void handler(req, res);
        return;
      }
      void isPassedOn[0]?.then(() => handler(req, res));
    });
    const port = await listen(t, server);
    const refused = chunked({ headers: { Authorization: undefined } });
    const received = await sendPlainly(t)(port, Buffer.concat([plant(1), refused, plant(2)]));
    t.match(
      parseResponses(received),
      exactly({ status: 200, closes: false }, { status: 401, closes: true }),
    );
    t.strictSame(stored, [1n]);
  },
);

t.test('no request is processed after an application sends Connection: close itself', async (t) => {
  const { handler, stored } = makeService();
  const applications: Record<string, RequestListener> = {
    'before it calls the handler': (req, res) => {
      if (req.url === '/elsewhere') res.setHeader('Connection', 'close');
      void handler(req, res, () => res.end('{}'));
    },
    'in next': (req, res) => {
      void handler(req, res, () => res.setHeader('Connection', 'close').end('{}'));
    },
    'in a route of Express': express()
      .use(handler)
      .use((_req, res) => void res.set('Connection', 'close').json({})),
  };
  const elsewhere = message({ target: '/elsewhere', body: '' });
  for (const [when, application] of Object.entries(applications)) {
    const port = await listen(t, createServer(application));
    const received = await sendPlainly(t)(port, Buffer.concat([elsewhere, plant(2)]));
    t.match(parseResponses(received), exactly({ status: 200, closes: true }), when);
    t.strictSame(stored, [], when);
  }
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
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
    gated.letGo();
    t.match(await client.answer(), { status: 200, headers: { connection: 'close' } });
    await client.closed;
    await stopped;
    t.strictSame(stored, [1n]);
  },
);

t.test('an application can set Connection: close on a response', async (t) => {
  const closings: Readonly<Record<string, (handler: PlantHandler) => Server>> = {
    'by a header': (handler) =>
      createServer((req, res) => {
        res.setHeader('Connection', 'close');
        void handler(req, res);
      }),
    'by shouldKeepAlive': (handler) =>
      createServer((req, res) => {
        res.shouldKeepAlive = false;
        void handler(req, res);
      }),
  };
  for (const [about, makeServer] of Object.entries(closings)) {
    const { handler, stored } = makeService();
    const port = await listen(t, makeServer(handler));
    const received = await sendPlainly(t)(port, Buffer.concat([plant(1), plant(2)]));
    t.match(parseResponses(received), exactly({ status: 200, closes: true }), about);
    t.strictSame(stored, [1n], about);
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
  // Node's strict parser refuses it by itself.
  const port = await listen(t, createServer({ insecureHTTPParser: true }, handler));
  const last = message({ headers: { Connection: 'close' }, body: FERN });
  const received = await sendPlainly(t)(port, Buffer.concat([last, plant(2)]));
  t.match(parseResponses(received), exactly({ status: 200, closes: true }));
  t.strictSame(stored, [7n]);
});
