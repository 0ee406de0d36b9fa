import { EventEmitter, once } from 'node:events';
import { createServer } from 'node:http';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';

import t, { type Test } from 'tap';

import { createPlantHandler } from '../../dist/index.js';
import { connect, exchange, FERN, isFailure, message, TOKEN, type Client } from '../client.js';
import { listen, serve, whenServed } from '../service.js';
import { gatedStore, storeOf } from '../stores.js';
import { nextClose, ONE_AT_A_TIME } from './support.js';

const plant = (id: number): Buffer => message({ body: `{"id":${id},"name":"fern"}` });

/** A store in which plants 1 and 3 are pending until their gates open, and others are stored at once. */
function slowStore() {
  const [first, third] = [gatedStore(), gatedStore()];
  const store = storeOf(async (plant) => {
    if (plant.id === 1n) return first.add(plant);
    return plant.id === 3n ? third.add(plant) : 'created';
  });
  return { store, first, third };
}

/** Checks that the next answers are 200. */
async function areStored(t: Test, client: Client, count: number): Promise<void> {
  for (let answers = 0; answers < count; answers++)
    t.equal((await client.answer()).status, 200, `answer ${answers + 1}`);
}

t.test('a request stays in the budget until its response is flushed', async (t) => {
  const { store, first } = slowStore();
  const { port } = await serve(t, { store, maxBodyBytes: 100, maxBufferedBytes: 3 * 4096 });
  const client = await connect(t, port);
  client.send(Buffer.concat([plant(1), plant(2), plant(4)]));
  await first.arrived(1);
  const refused = await exchange(t, port, message());
  isFailure(t, refused, { status: 503 }, 'two small responses are queued behind the first');
  first.letGo();
  await areStored(t, client, 3);
  t.equal(await whenServed(t, port, message()), 200, 'they are flushed');
});

for (const ids of [
  [3, 4],
  [1, 2, 3, 4, 5],
])
  t.test(`plants ${ids.join()}: memory is released when the connection closes`, async (t) => {
    const { store, first, third } = slowStore();
    const limits = { maxBodyBytes: 5 * 512, maxBufferedBytes: 5 * 4096, bodyTimeoutMs: 600_000 };
    const { port, server } = await serve(t, { store, ...limits });
    const closed = nextClose(server);
    const client = await connect(t, port);
    client.send(Buffer.concat(ids.map(plant)));
    await third.arrived(1);
    first.letGo();
    await areStored(t, client, ids.indexOf(3));
    client.socket.destroy();
    await closed;
    const large = message({ body: '{"id":6,"name":"fern"}'.padEnd(limits.maxBodyBytes) });
    t.equal(
      await whenServed(t, port, large),
      200,
      'only plant 3, which is not stored yet, is held',
    );
  });

t.test('responses to a client that has disconnected release their memory at once', async (t) => {
  const store = gatedStore();
  const limits = { maxBodyBytes: 1024, maxBufferedBytes: 2 * 4096 };
  const { port, server } = await serve(t, { store, ...limits });
  const closed = nextClose(server);
  const client = await connect(t, port);
  client.send(message(), message());
  await store.arrived(2);
  client.socket.destroy();
  await closed;
  isFailure(t, await exchange(t, port, message()), { status: 503 }, 'the plants are pending');
  store.letGo();
  await new Promise(setImmediate);
  const large = message({ body: FERN.padEnd(limits.maxBodyBytes) });
  t.equal((await exchange(t, port, large)).status, 200);
});

t.test('a connection that is kept collects no listeners', async (t) => {
  const { port, server } = await serve(t);
  const connected = once(server, 'connection') as Promise<[Socket]>;
  const client = await connect(t, port);
  const [socket] = await connected;
  const listeners = () => socket.eventNames().map((name) => [name, socket.listenerCount(name)]);
  client.send(message());
  await areStored(t, client, 1);
  const before = listeners();

  const warnings: Error[] = [];
  const onWarning = (warning: Error) => void warnings.push(warning);
  process.on('warning', onWarning);
  t.teardown(() => process.off('warning', onWarning));
  const refused = message({ method: 'PUT' });
  for (const queued of [1, 1, 50]) {
    // The refusals are ready first, and wait for the response to the plant.
    client.send(Buffer.concat([message(), ...Array<Buffer>(queued).fill(refused)]));
    await areStored(t, client, 1);
    for (let n = 0; n < queued; n++) t.equal((await client.answer()).status, 405);
  }
  client.send(message());
  await areStored(t, client, 1);
  t.equal(socket.getMaxListeners(), EventEmitter.defaultMaxListeners, 'Node warns of a leak');
  t.strictSame(warnings, [], 'there were never too many');
  t.strictSame(listeners(), before, 'none is left');
});

t.test('a client that does not read its answer is disconnected, its memory freed', async (t) => {
  // Larger than the buffers of the system on both sides. Its memory is half of the budget.
  const size = 16 * 1_048_576;
  const limits = { maxBodyBytes: size, maxBufferedBytes: 8 * size, bodyTimeoutMs: 50 };
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

  // Another plant that needs as much, but has a short answer.
  left = { body: FERN.padEnd(size) };
  t.equal(await whenServed(t, port, message()), 200, 'the memory is released');
});

t.test('memory is released in time even if a connection does not say that it closes', async (t) => {
  const { port, server } = await serve(t, { ...ONE_AT_A_TIME, bodyTimeoutMs: 50 });
  const neverFlushed = new Duplex({
    emitClose: false,
    read: () => undefined,
    write: () => undefined,
  });
  server.emit('connection', neverFlushed);
  const answered = once(server, 'request');
  neverFlushed.push(message());
  await answered;
  t.equal(await whenServed(t, port, message()), 200);
});
