import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { queryObjects } from 'node:v8';

import t, { type Test } from 'tap';

import { Reservation } from '../../dist/http/budget.js';
import { resolveLimits } from '../../dist/http/limits.js';
import { createPlantHandler } from '../../dist/index.js';
import { REPORT_RATE } from '../../dist/report.js';
import {
  chunk,
  CHUNKED,
  connect,
  exchange,
  expectFailure,
  message,
  TOKEN,
} from '../helpers/client.js';
import { FERN, FERN_JSON, inJson } from '../helpers/plants.js';
import { expireAtOnce, untilReleased, listen, listenTo, serve } from '../helpers/service.js';
import { gatedStore, storeOf, type GatedStore } from '../helpers/stores.js';
import { untilNextClose, plantOfSize } from './support.js';

const NO_TOKEN = message({ headers: { Authorization: undefined } });

t.test('a limit that is omitted has its default', async (t) => {
  const options: object = { maxBodyBytes: 5, bodyTimeoutMs: undefined };
  const others = { maxBufferedBytes: 67_108_864, bodyTimeoutMs: 30_000 };
  t.strictSame(resolveLimits(options), { maxBodyBytes: 5, ...others });
  t.strictSame(resolveLimits({}), { maxBodyBytes: 1_048_576, ...others });
});

const MAXIMA = {
  maxBodyBytes: 67_108_864,
  maxBufferedBytes: 9_007_199_254_740_991,
  bodyTimeoutMs: 2_147_483_647,
};

t.test('a limit must be an integer between 1 and its maximum', async (t) => {
  t.strictSame(resolveLimits(MAXIMA), MAXIMA);
  t.doesNotThrow(() => resolveLimits({ maxBodyBytes: 1, maxBufferedBytes: 8, bodyTimeoutMs: 1 }));
  for (const [name, max] of Object.entries(MAXIMA)) {
    for (const value of [0, -1, 1.5, NaN, Infinity, '5', '', true, [5], 5n, max + 1])
      t.throws(
        () => resolveLimits({ [name]: value }),
        { name: 'RangeError', message: `${name}: must be an integer between 1 and ${max}` },
        `${name}: ${typeof value} ${String(value)}`,
      );
  }
});

t.test('maxBufferedBytes must be at least eight times maxBodyBytes', async (t) => {
  const name = 'RangeError';
  const message = 'maxBufferedBytes: must be at least eight times maxBodyBytes';
  t.doesNotThrow(() => resolveLimits({ maxBodyBytes: 100, maxBufferedBytes: 800 }));
  t.throws(() => resolveLimits({ maxBodyBytes: 100, maxBufferedBytes: 799 }), { name, message });
  t.throws(() => resolveLimits({ maxBufferedBytes: 8_388_607 }), { name, message });
});

t.test('a request fits into the smallest budget if it is alone, and takes no more', async (t) => {
  const size = Buffer.byteLength(FERN_JSON);
  const { port, handler } = await serve(t, { maxBodyBytes: size, maxBufferedBytes: 8 * size });
  const held: number[] = [];
  listenTo(t, 'plant-store:response', () => held.push(handler.bufferedBytes()));
  t.equal((await exchange(t, port, message())).status, 200);
  t.equal((await exchange(t, port, message({ body: '{}' }))).status, 400);
  t.strictSame(held, [8 * size, 8 * size]);
});

const LONG = 'x'.repeat(5_000);
const withTrailers = message({
  headers: CHUNKED,
  body: Buffer.concat([chunk(FERN_JSON), Buffer.from(`0\r\nX: ${LONG}\r\n\r\n`)]),
});

const inPieces = message({
  headers: CHUNKED,
  body: Buffer.concat([FERN_JSON.slice(0, -1), FERN_JSON.slice(-1), ''].map(chunk)),
});

/**
 * Requests that are larger than the usual request, and how much more memory they take, in bytes.
 */
const LARGER: Readonly<Record<string, readonly [bytes: number, request: Buffer]>> = {
  'a long target': [5_001, message({ target: `/plants?${LONG}` })],
  'a header line': [128 + 5_001, message({ headers: { X: LONG } })],
  // The Content-Length has one more digit.
  'a body': [4 * 99 + 1, message({ body: FERN_JSON + ' '.repeat(99) })],
  // `Transfer-Encoding: chunked` is 8 bytes longer than the line with the Content-Length.
  'a body in pieces': [4 * (Buffer.byteLength(FERN_JSON) - 2) + 8, inPieces],
  trailers: [128 + 5_001 + 8, withTrailers],
};

/**
 * Checks that a request gets 503 at once while `plants` plants are pending in a store.
 */
async function expectRefused(
  t: Test,
  { port, store, plants }: { port: number; store: GatedStore; plants: number },
  request: Buffer,
  about: string,
): Promise<void> {
  const stored = store.untilArrived(plants + 1).then(() => undefined);
  const answer = await Promise.race([exchange(t, port, request), stored]);
  const overloaded = { status: 503, headers: { 'retry-after': '1' } };
  if (answer) expectFailure(t, answer, overloaded, about);
  else t.fail(`${about}: it is not refused`);
}

t.test('all parts of a request count in its memory', async (t) => {
  const store = gatedStore();
  const { port, handler } = await serve(t, {
    store,
    maxBodyBytes: 1_000,
    maxBufferedBytes: 45_000,
  });
  let [plants, held] = [0, 0];
  /** Sends a request that stays pending, and resolves to the memory that it takes. */
  async function memoryOf(request: Buffer): Promise<number> {
    const client = await connect(t, port);
    client.send(request);
    const answered = client.answer().then(({ status }) => t.fail(`refused with ${status}`));
    await Promise.race([store.untilArrived(++plants), answered]);
    const before = held;
    held = handler.bufferedBytes();
    return held - before;
  }
  const usual = await memoryOf(message());
  for (const [about, [more, request]] of Object.entries(LARGER))
    t.equal(await memoryOf(request), usual + more, about);
  await expectRefused(t, { port, store, plants }, withTrailers, 'only the head would fit');
});

t.test('the memory of all requests is limited, and reaching the limit is reported', async (t) => {
  const store = gatedStore();
  const reports: string[] = [];
  const report = (message: string) => void reports.push(message);
  // Each body counts four times, and each head about 3,700 bytes.
  const limits = { maxBodyBytes: 10_000, maxBufferedBytes: 131_000 };
  const { port, handler } = await serve(t, { store, report, ...limits });
  const request = message({ body: plantOfSize(10_000) });
  const waiting = [exchange(t, port, request), exchange(t, port, request)];
  await store.untilArrived(2);
  await expectRefused(t, { port, store, plants: 2 }, request, 'a third does not fit');
  waiting.push(exchange(t, port, message({ body: plantOfSize(9_900) })));
  await store.untilArrived(3);
  for (let n = 0; n < 12; n++)
    await expectRefused(t, { port, store, plants: 3 }, message(), 'no other plant fits');
  t.equal(reports.length, REPORT_RATE.count, 'not each time');
  t.match(reports.at(-1), /^overloaded: requests hold \d+ of \d+ bytes \(maxBufferedBytes, /);
  store.letGo();
  for (const { status } of await Promise.all(waiting)) t.equal(status, 200);
  await untilReleased({ handler });
});

const plant = (id: bigint): Buffer => message({ body: inJson({ ...FERN, id }) });

t.test('memory is held until a response is flushed, or its connection closes', async (t) => {
  const [first, third] = [gatedStore(), gatedStore()];
  const store = storeOf(async (plant) => {
    if (plant.id === 1n) return first.add(plant);
    return plant.id === 3n ? third.add(plant) : 'created';
  });
  const { port, server, handler } = await serve(t, { store });
  const closed = untilNextClose(server);
  const client = await connect(t, port);
  client.send(Buffer.concat([1n, 2n, 3n, 4n, 5n].map(plant)));
  await Promise.all([first.untilArrived(1), third.untilArrived(1)]);
  const held = handler.bufferedBytes();
  first.letGo();
  for (const id of [1, 2]) t.equal((await client.answer()).status, 200, `plant ${id}`);
  while (handler.bufferedBytes() > (held / 5) * 3) await new Promise(setImmediate);
  t.equal(handler.bufferedBytes(), (held / 5) * 3, 'the others are pending or queued');
  client.socket.destroy();
  await closed;
  t.equal(handler.bufferedBytes(), held / 5, 'only plant 3, which is not stored yet, is held');
  third.letGo();
  await new Promise(setImmediate);
  t.equal(handler.bufferedBytes(), 0, 'the client has disconnected before it is stored');
});

t.test('a connection that is kept open accumulates neither listeners nor timers', async (t) => {
  const { port, server } = await serve(t);
  const connected = once(server, 'connection') as Promise<[Socket]>;
  const client = await connect(t, port);
  const [socket] = await connected;
  const listeners = () => socket.eventNames().map((name) => [name, socket.listenerCount(name)]);
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  const timersBefore = timers();
  /**
   * Sends a plant, and requests whose refusals are ready first and wait for the response to the
   * plant.
   */
  async function queue(count: number): Promise<void> {
    const refused = Array<Buffer>(count).fill(message({ method: 'PUT' }));
    client.send(Buffer.concat([message(), ...refused]));
    t.equal((await client.answer()).status, 200);
    for (let n = 0; n < count; n++) t.equal((await client.answer()).status, 405);
    // The plant comes in two parts, so that a timer is started.
    client.send(message().subarray(0, -1));
    await exchange(t, port, message({ method: 'PUT' }));
    client.send('}');
    t.equal((await client.answer()).status, 200);
  }
  await queue(1);
  const before = listeners();
  const warnings = t.capture(process, 'emitWarning');
  await queue(50);
  t.strictSame(warnings(), [], 'there were never too many');
  t.strictSame(listeners(), before, 'no more than after the first one');
  t.equal(timers(), timersBefore, 'the times to read a body and to flush a response are over');
});

t.test('a connection that is kept open holds nothing of responses that were flushed', async (t) => {
  const { port, handler } = await serve(t);
  const client = await connect(t, port);
  const before = queryObjects(Reservation, { format: 'count' });
  const count = 300;
  // The refusals are ready first, and wait for the response to the plant.
  client.send(Buffer.concat([message(), ...Array<Buffer>(count).fill(NO_TOKEN)]));
  for (let n = 0; n <= count; n++) await client.answer();
  await untilReleased({ handler });
  // Objects of the code that has just run may still be on the stack.
  await new Promise(setImmediate);
  const held = queryObjects(Reservation, { format: 'count' }) - before;
  t.ok(held < count / 10, `${held} of ${count}`);
});

t.test('a client that does not read its answer for 30 s is closed, its memory freed', async (t) => {
  expireAtOnce(t, 30_000);
  // Larger than the buffers of the system on both sides.
  const size = 16 * 1_048_576;
  const limits = { maxBodyBytes: size, maxBufferedBytes: 8 * size };
  const store = storeOf(async () => 'created');
  const handler = createPlantHandler({ store, tokens: [TOKEN], ...limits });
  const left = { body: { id: 7, name: 'x'.repeat(size - 100) } };
  const server = createServer((req, res) => {
    req.resume().on('end', () => handler(Object.assign(req, left), res));
  });
  const port = await listen(t, server);
  const serverSide = untilNextClose(server);
  const client = await connect(t, port);
  client.socket.pause();
  client.send(message());
  const { bytesWritten } = await serverSide;
  t.ok(bytesWritten > 10_000, 'after the 200 has begun');
  await untilReleased({ handler });
});

t.test('memory is released after 30 s even if a connection does not emit close', async (t) => {
  expireAtOnce(t, 30_000);
  const { handler, server } = await serve(t);
  for (const [what, request] of [
    ['a plant', message()],
    ['a refused request', message({ method: 'PUT' })],
  ] as const) {
    const neverFlushed = new Duplex({
      emitClose: false,
      read: () => undefined,
      write: () => undefined,
    });
    server.emit('connection', neverFlushed);
    neverFlushed.push(request);
    await once(server, 'request');
    while (!neverFlushed.destroyed) await new Promise(setImmediate);
    t.equal(handler.bufferedBytes(), 0, what);
  }
});
