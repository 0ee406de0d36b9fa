import { EventEmitter, once } from 'node:events';
import { createServer } from 'node:http';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';

import t from 'tap';

import { connect, exchange, isFailure, message } from '../client.js';
import { listen, serve, whenServed } from '../service.js';
import { gatedStore, storeOf } from '../stores.js';

t.test('all queued responses of a connection share one listener', async (t) => {
  const slow = gatedStore();
  let stored = 0;
  const store = storeOf(async (plant) => {
    if (plant.id === 1n) return slow.add(plant);
    stored++;
    return 'created';
  });
  const { port, server } = await serve(t, { store });
  const connection = once(server, 'connection') as Promise<[Socket]>;
  const client = await connect(t, port);
  const [socket] = await connection;
  /** Sends plants whose responses are queued behind that of the first. */
  async function queue(count: number): Promise<number> {
    const target = stored + count;
    client.send(Buffer.concat(Array.from({ length: count }, () => message())));
    while (stored < target) await new Promise(setImmediate);
    return socket.listenerCount('close');
  }
  client.send(message({ body: '{"id":1,"name":"slow"}' }));
  await slow.arrived(1);
  const listeners = await queue(1);
  t.equal(await queue(50), listeners, 'fifty more need no other listener');
  t.equal(socket.getMaxListeners(), EventEmitter.defaultMaxListeners, 'Node still warns of a leak');
  slow.letGo();
  for (let answers = 0; answers < 52; answers++) t.equal((await client.answer()).status, 200);
});

t.test('a request stays in the budget until its response is flushed', async (t) => {
  const slow = gatedStore();
  const store = storeOf(async (plant) => (plant.id === 1n ? slow.add(plant) : 'created'));
  const { port } = await serve(t, { store, maxBodyBytes: 100, maxBufferedBytes: 3 * 4096 });
  const client = await connect(t, port);
  const slowOne = message({ body: '{"id":1,"name":"slow"}' });
  client.send(Buffer.concat([slowOne, message(), message()]));
  await slow.arrived(1);
  const refused = await exchange(t, port, message());
  isFailure(t, refused, { status: 503 }, 'two small responses are queued behind the first');
  slow.letGo();
  for (let answers = 0; answers < 3; answers++) t.equal((await client.answer()).status, 200);
  t.equal(await whenServed(t, port, message()), 200, 'they are flushed');
});

t.test('queued responses release their memory when their connection closes', async (t) => {
  const [first, third] = [gatedStore(), gatedStore()];
  const store = storeOf(async (plant) => {
    if (plant.id === 1n) return first.add(plant);
    return plant.id === 3n ? third.add(plant) : 'created';
  });
  const limits = { maxBodyBytes: 3 * 4096, maxBufferedBytes: 5 * 4096 };
  const { port, server } = await serve(t, { store, ...limits });
  const connection = once(server, 'connection') as Promise<[Socket]>;
  const client = await connect(t, port);
  const [socket] = await connection;
  const plants = [1, 2, 3, 4, 5].map((id) => message({ body: `{"id":${id},"name":"fern"}` }));
  client.send(Buffer.concat(plants));
  await third.arrived(1);
  first.letGo();
  for (const id of [1, 2]) t.equal((await client.answer()).status, 200, `plant ${id}`);
  const closed = once(socket, 'close');
  client.socket.destroy();
  await closed;
  const large = message({ body: '{"id":6,"name":"fern"}'.padEnd(limits.maxBodyBytes) });
  t.equal(await whenServed(t, port, large), 200, 'only plant 3, which is not stored yet, is held');
});

t.test('a queued response that is not flushed in time costs the connection', async (t) => {
  const limits = { maxBodyBytes: 100, maxBufferedBytes: 4096, bodyTimeoutMs: 50 };
  const { handler } = await serve(t, limits);
  const server = createServer((req, res) => handler(req, res, () => t.pass('not answered')));
  const port = await listen(t, server);
  const client = await connect(t, port);
  client.send(message({ target: '/endless' }), message());
  await client.closed;
  t.equal(await whenServed(t, port, message()), 200, 'its memory is released');
});

t.test('memory is released in time even if a connection does not say that it closes', async (t) => {
  const limits = { maxBodyBytes: 100, maxBufferedBytes: 4096, bodyTimeoutMs: 50 };
  const { port, server } = await serve(t, limits);
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
