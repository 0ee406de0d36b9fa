import { subscribe, unsubscribe, type ChannelListener } from 'node:diagnostics_channel';
import { ServerResponse, type IncomingMessage, type Server } from 'node:http';
import { setImmediate } from 'node:timers/promises';

import t from 'tap';

import { anyAnswer, connect, eventOrClose, message, openSocket } from '../client.js';
import { startPlantServer } from '../service.js';
import { gatedStore } from '../stores.js';
import {
  chunked,
  inHttp10,
  makeService,
  plant,
  responsesOn,
  serveAnother,
  startApplication,
} from './support.js';

/*
 * RFC 9112, section 9.6: after a response with `Connection: close`, a server must not process any
 * further request on that connection. The requests here come in one packet, so the later ones have
 * arrived before the response is sent. The program keeps this; in an application, node:http passes these requests on.
 */

const NO_TOKEN = chunked({ Authorization: undefined });

/** Requests whose response closes the connection, and its `error`. Bodies that are refused have not arrived by then. */
const LAST: Readonly<Record<string, readonly [error: number, request: Buffer]>> = {
  'Connection: close': [200, plant(2, { headers: { Connection: 'close' } })],
  'Upgrade without Connection: Upgrade': [200, plant(2, { headers: { Upgrade: 'h2c' } })],
  'a transfer coding other than chunked': [501, chunked({ 'Transfer-Encoding': 'gzip, chunked' })],
  'no token': [401, NO_TOKEN],
  'another media type': [415, chunked({ 'Content-Type': 'text/plain' })],
  'no token, and waiting for 100': [
    401,
    message({ headers: { Authorization: undefined, Expect: '100-continue' } }),
  ],
  'another expectation': [417, chunked({ Expect: '200-ok' })],
  'HTTP/1.0 with a transfer coding': [400, inHttp10(chunked({ Connection: 'keep-alive' }))],
};

t.test('no request is processed after a response that closes', async (t) => {
  const { handler, stored } = makeService();
  const { port } = await startPlantServer(t, { handler });
  for (const [about, [error, request]] of Object.entries(LAST)) {
    const socket = await openSocket(port);
    socket.write(Buffer.concat([plant(1), request, plant(3), NO_TOKEN, plant(4)]));
    t.strictSame(
      await responsesOn(socket),
      [
        { error: 200, closes: false },
        { error, closes: true },
      ],
      about,
    );
    t.strictSame(stored.splice(0), error === 200 ? [1n, 2n] : [1n], about);
  }
});

t.test('in an application, requests behind the last response do not end the process', async (t) => {
  const port = await startApplication(t, makeService().handler);
  for (let turns = 0; turns < 5; turns++) {
    const socket = await openSocket(port);
    let received = '';
    socket.on('data', (data) => (received += String(data)));
    const closed = eventOrClose(socket, 'close');
    socket.write(Buffer.concat([NO_TOKEN, plant(2), plant(3)]));
    // More requests arrive before, while or after the server closes the connection.
    for (let turn = 0; turn < turns; turn++) await setImmediate();
    for (const id of [4, 5, 6, 7]) socket.write(plant(id));
    await closed;
    // None if the connection was reset.
    t.ok(received.split('HTTP/1.1 ').length <= 2);
    await serveAnother(port);
  }
});

t.test('nothing is processed on a connection that is about to close', async (t) => {
  let handled = 0;
  const handler = async (_req: unknown, res: ServerResponse): Promise<void> => {
    handled++;
    res.setHeader('Connection', 'close').end();
  };
  const { port } = await startPlantServer(t, { handler });
  // What the parser would do with a request that is read just after a response has been sent.
  const onFinish: ChannelListener = (message) => {
    const { request, server } = message as { request: IncomingMessage; server: Server };
    const again = (): unknown => server.emit('request', request, new ServerResponse(request));
    queueMicrotask(() => process.nextTick(again));
  };
  subscribe('http.server.response.finish', onFinish);
  t.teardown(() => unsubscribe('http.server.response.finish', onFinish));
  const client = await connect(t, port, anyAnswer);
  client.send(plant(1));
  await client.closed;
  t.equal(handled, 1);
});

t.test('while the program stops, each connection processes one more request at most', async (t) => {
  const gated = gatedStore();
  const { handler, stored } = makeService(gated);
  const server = await startPlantServer(t, { handler });
  const [busy, idle] = [await connect(t, server.port), await connect(t, server.port)];
  busy.send(plant(1));
  await gated.arrived(1);
  const stopped = server.stop(60_000);
  busy.send(plant(2));
  idle.send(Buffer.concat([plant(3), plant(4)]));
  await gated.arrived(2);
  gated.letGo();
  for (const client of [busy, idle]) {
    t.match(await client.answer(), { status: 200, headers: { connection: 'close' } });
    await client.closed;
    await t.rejects(client.answer(), { message: 'closed after 0 bytes of an answer' });
  }
  await stopped;
  t.strictSame(stored, [1n, 3n]);
});
