import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';

import t, { type Test } from 'tap';

import { failures } from '../../dist/http/failures.js';
import { DRAIN } from '../../dist/http/memory.js';
import { endGently, endWith } from '../../dist/program/end-connection.js';
import { connect } from '../client.js';
import { listen } from '../service.js';

/** Both ends of a connection; closing one leaves the other open. */
async function connection(t: Test): Promise<{ client: Socket; socket: Socket }> {
  const server = createServer({ allowHalfOpen: true });
  const accepted = once(server, 'connection');
  const { socket: client } = await connect(t, await listen(t, server));
  const [socket] = (await accepted) as [Socket];
  return { client, socket };
}

t.test('a connection ends with a failure', async (t) => {
  const { client, socket } = await connection(t);
  endWith(socket, failures.method);
  const answer = await text(client);
  t.match(answer, /^HTTP\/1\.1 405 Method Not Allowed\r\nAllow: POST\r\n/);
  t.match(answer, '\r\nConnection: close\r\n');
  t.ok(answer.endsWith(`\r\n\r\n${failures.method.body}`));
});

t.test('a connection that has been ended is closed', async (t) => {
  const published: unknown[] = [];
  const note = (message: unknown): void => void published.push(message);
  subscribe('plant-store:response', note);
  t.teardown(() => unsubscribe('plant-store:response', note));
  const { client, socket } = await connection(t);
  socket.end('the last bytes');
  endWith(socket, failures.method);
  t.ok(socket.destroyed);
  t.strictSame(published, [], 'the failure is not published, because it cannot be sent');
  await once(client, 'close');
});

t.test('a client that does not close its side is read from for a while, then closed', async (t) => {
  const { client, socket } = await connection(t);
  client.allowHalfOpen = true;
  const closed = once(socket, 'close');
  const endedAt = performance.now();
  endGently(socket, 'bye');
  await once(client.resume(), 'end');
  await closed;
  // A timer may fire a little early.
  t.ok(performance.now() - endedAt > 0.9 * DRAIN.timeoutMs);
});
