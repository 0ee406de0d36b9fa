/*
 * RFC 9112, section 9.6: after a response with `Connection: close`, a server must not process any
 * further request on that connection. The program keeps this even for requests that have arrived
 * before the response is sent; in an application, node:http passes these requests on.
 */
import type { ChannelListener } from 'node:diagnostics_channel';
import { createServer, ServerResponse, type IncomingMessage, type Server } from 'node:http';
import type { Socket } from 'node:net';
import { buffer, text } from 'node:stream/consumers';

import t, { type Test } from 'tap';

import { createPlantHandler, type PlantHandler } from '../../../dist/index.js';
import {
  anyAnswer,
  chunk,
  CHUNKED,
  connect,
  exchange,
  message,
  openSocket,
  parseAnswers,
  TOKEN,
  type Message,
} from '../../helpers/client.js';
import { FERN, inJson } from '../../helpers/plants.js';
import { listen, listenTo, startPlantServer } from '../../helpers/service.js';
import { gatedStore, storeOf } from '../../helpers/stores.js';

/**
 * A handler, and a function that returns the ids of the plants that its store was given since the
 * last call.
 */
function createService(store = storeOf(async () => 'created')) {
  const stored: number[] = [];
  const noting = storeOf((plant) => {
    stored.push(Number(plant.id));
    return store.add(plant);
  });
  const handler = createPlantHandler({ store: noting, tokens: [TOKEN] });
  return { handler, ids: () => stored.splice(0) };
}

const startProgram = async (t: Test, handler: PlantHandler): Promise<number> =>
  (await startPlantServer(t, { handler })).port;
const startApplication = (t: Test, handler: PlantHandler): Promise<number> =>
  listen(t, createServer(handler));

const plant = (id: number, parts: Message = {}): Buffer =>
  message({ body: inJson({ ...FERN, id: BigInt(id) }), ...parts });

/** A request with a chunked body, which is empty. */
const chunked = (headers: Message['headers'] = {}): Buffer =>
  message({ headers: { ...CHUNKED, ...headers }, body: chunk('') });

/** The same request in HTTP/1.0. */
const inHttp10 = (request: Buffer): Buffer =>
  Buffer.from(request.toString().replace('HTTP/1.1', 'HTTP/1.0'));

/**
 * Resolves to the responses on a connection once it is closed: `error`, or the status of a 200, and
 * whether it closes.
 */
async function responsesOn(socket: Socket): Promise<[number, string | undefined][]> {
  const { answers } = parseAnswers(await buffer(socket));
  return answers.map(({ status, headers, body }) => {
    const { error = status } = JSON.parse(body) as { error?: number };
    return [error, headers.connection];
  });
}

const NO_TOKEN = chunked({ Authorization: undefined });

/**
 * Requests whose response closes the connection, and its `error`. Refused bodies have not arrived
 * when the response is sent.
 */
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

t.test('no request is processed after a response that closes the connection', async (t) => {
  const { handler, ids } = createService();
  const port = await startProgram(t, handler);
  for (const [about, [error, request]] of Object.entries(LAST)) {
    const socket = await openSocket(port);
    socket.write(Buffer.concat([plant(1), request, plant(3), NO_TOKEN, plant(4)]));
    const expected = [
      [200, 'keep-alive'],
      [error, 'close'],
    ];
    t.strictSame(await responsesOn(socket), expected, about);
    t.strictSame(ids(), error === 200 ? [1, 2] : [1], about);
  }
});

t.test('a client that does not wait for 100 before its body keeps its connection', async (t) => {
  const { handler, ids } = createService();
  const client = await connect(t, await startProgram(t, handler));
  client.send(plant(1, { headers: { Expect: '100-continue' } }), plant(2));
  t.equal((await client.answer()).status, 100);
  for (const about of ['the response to it', 'the one behind it']) {
    const { status, headers } = await client.answer();
    t.strictSame([status, headers.connection], [200, 'keep-alive'], about);
  }
  t.strictSame(ids(), [1, 2]);
});

t.test('nothing is processed on a connection that is about to close', async (t) => {
  let handled = 0;
  const handler = async (_req: unknown, res: ServerResponse): Promise<void> => {
    handled++;
    res.setHeader('Connection', 'close').end();
  };
  const { port } = await startPlantServer(t, { handler });
  // Does what the parser does with a request that it reads just after a response has been sent.
  listenTo(t, 'http.server.response.finish', (message) => {
    const { request, server } = message as { request: IncomingMessage; server: Server };
    const again = (): unknown => server.emit('request', request, new ServerResponse(request));
    queueMicrotask(() => process.nextTick(again));
  });
  const client = await connect(t, port, anyAnswer);
  client.send(plant(1));
  await client.closed;
  t.equal(handled, 1);
});

/*
 * The parser of node:http stops after a request with `Connection: Upgrade` and `Upgrade`. If no
 * listener takes the connection over, node:http drops the rest of what it has read, and goes on
 * with what comes next.
 */
const upgrade = ({ headers, ...rest }: Message = {}): Buffer =>
  plant(1, { ...rest, headers: { Connection: 'Upgrade', Upgrade: 'h2c', ...headers } });

/** Requests with `Upgrade`, and the `error` of their responses. */
const UPGRADES: Readonly<Record<string, readonly [error: number, request: Buffer]>> = {
  'a plant, with other connection options': [
    200,
    upgrade({ headers: { Connection: 'keep-alive, upgrade, HTTP2-Settings' } }),
  ],
  'a plant in HTTP/1.0': [
    200,
    inHttp10(upgrade({ headers: { Connection: 'Upgrade, keep-alive' } })),
  ],
  'no token': [401, upgrade({ headers: { Authorization: undefined } })],
  'not a plant': [422, upgrade({ body: '{}' })],
};

/**
 * Sends two segments, the second one when the server has read the first. Resolves to all responses.
 */
async function sendTwo(
  t: Test,
  port: number,
  segments: readonly Buffer[],
): ReturnType<typeof responsesOn> {
  const socket = await openSocket(port);
  const received = responsesOn(socket);
  for (const segment of segments) {
    await new Promise((resolve) => socket.write(segment, resolve));
    // Once the server has answered on another connection, it has read the segment.
    await exchange(t, port, NO_TOKEN);
  }
  return received;
}

for (const start of [startProgram, startApplication])
  t.test(`${start.name}: a request with Upgrade is the last one of its connection`, async (t) => {
    const { handler, ids } = createService();
    const port = await start(t, handler);
    for (const [about, [error, request]] of Object.entries(UPGRADES)) {
      const segments = [Buffer.concat([request, plant(2)]), Buffer.concat([plant(3), plant(4)])];
      t.strictSame(await sendTwo(t, port, segments), [[error, 'close']], about);
      t.strictSame(ids(), error === 200 ? [1] : [], about);
    }
  });

t.test('nothing is processed while a request with Upgrade is pending', async (t) => {
  const rest = plant(5);
  const segments: Readonly<Record<string, readonly Buffer[]>> = {
    'more plants': [Buffer.concat([upgrade(), plant(2)]), Buffer.concat([plant(3), plant(4)])],
    'the body of another request, which is itself a request': [
      Buffer.concat([upgrade(), message({ body: rest }).subarray(0, -rest.length)]),
      rest,
    ],
  };
  for (const [about, both] of Object.entries(segments)) {
    const gated = gatedStore();
    const { handler, ids } = createService(gated);
    const port = await startProgram(t, handler);
    const received = sendTwo(t, port, both);
    await gated.untilArrived(1);
    for (let times = 0; times < 2; times++) await exchange(t, port, NO_TOKEN);
    gated.letGo();
    t.strictSame(await received, [[200, 'close']], about);
    t.strictSame(ids(), [1], about);
  }
});

t.test('the response of another route of the application stays as it is', async (t) => {
  const { handler } = createService();
  const server = createServer((req, res) => {
    void handler(req, res, () => {
      t.notOk(res.hasHeader('Connection'));
      res.end('{}');
    });
  });
  const request = upgrade({ target: '/elsewhere', body: '' });
  const answer = await exchange(t, await listen(t, server), request, anyAnswer);
  t.match(answer, { body: '{}', headers: { connection: 'keep-alive' } });
});

/*
 * Once the responses that wait on a connection exceed a high-water mark, node:http pauses its
 * parser. TLS records that are decrypted by then reach the parser all the same, and are lost (Node
 * 20 to 26).
 */
t.test('a connection on which node:http loses bytes is closed without answer', async (t) => {
  const gated = gatedStore();
  const { handler, ids } = createService(gated);
  const begun = new Promise<{ server: Server; socket: Socket }>((resolve) => {
    listenTo(t, 'http.server.request.start', resolve as ChannelListener);
  });
  const port = await startProgram(t, handler);
  const client = await openSocket(port);
  client.write(Buffer.concat([plant(1), plant(2).subarray(0, -5)]));
  await gated.untilArrived(1);
  const { server, socket } = await begun;
  server.emit('clientError', Object.assign(new Error(), { code: 'HPE_PAUSED' }), socket);
  gated.letGo();
  client.write(Buffer.concat([plant(2).subarray(-5), plant(3)]));
  t.equal(await text(client), '');
  t.strictSame(ids(), [1]);
});
