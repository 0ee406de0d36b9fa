import { createServer } from 'node:http';
import type { Socket } from 'node:net';

import t from 'tap';

import { anyAnswer, connect, message, openSocket, type Message } from '../client.js';
import { listen } from '../service.js';
import { gatedStore } from '../stores.js';
import {
  inHttp10,
  makeService,
  plant,
  responsesOn,
  serveAnother,
  startApplication,
  startServer,
  type Response,
} from './support.js';

/*
 * The parser of node:http stops behind a request with `Connection: Upgrade` and `Upgrade`. If no listener
 * takes the connection over, node:http drops the rest of what it has read, and goes on with what comes next.
 */

const UPGRADE = { Connection: 'Upgrade', Upgrade: 'h2c' };

const upgrade = ({ headers, ...rest }: Message = {}): Buffer =>
  plant(1, { ...rest, headers: { ...UPGRADE, ...headers } });

/** Requests with `Upgrade`, and the `error` of their responses. */
const REQUESTS: Readonly<Record<string, readonly [error: number, request: Buffer]>> = {
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

/** Sends two segments, the second one when the server has read the first. Resolves to all of its responses. */
async function sendTwo(
  socket: Socket,
  segments: readonly Buffer[],
  hasRead: () => Promise<void>,
): Promise<Response[]> {
  const received = responsesOn(socket);
  for (const segment of segments) {
    await new Promise((resolve) => socket.write(segment, resolve));
    await hasRead();
  }
  return received;
}

const servers = { 'the program': startServer, 'an application': startApplication };

for (const [name, start] of Object.entries(servers))
  t.test(`in ${name}, a request with Upgrade is the last one of its connection`, async (t) => {
    const { handler, stored } = makeService();
    const port = await start(t, handler);
    for (const [about, [error, request]] of Object.entries(REQUESTS)) {
      const socket = await openSocket(port);
      const segments = [Buffer.concat([request, plant(2)]), Buffer.concat([plant(3), plant(4)])];
      const received = await sendTwo(socket, segments, () => serveAnother(port));
      t.strictSame(received, [{ error, closes: true }], about);
      t.strictSame(stored.splice(0), error === 200 ? [1n] : [], about);
    }
  });

t.test(
  'in the program, nothing is processed while a request with Upgrade is pending',
  async (t) => {
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
      const { handler, stored } = makeService(gated);
      const port = await startServer(t, handler);
      const received = sendTwo(await openSocket(port), both, () => serveAnother(port));
      await gated.arrived(1);
      await serveAnother(port);
      await serveAnother(port);
      gated.letGo();
      t.strictSame(await received, [{ error: 200, closes: true }], about);
      t.strictSame(stored, [1n], about);
    }
  },
);

t.test('the response of another route of the application stays as it is', async (t) => {
  const { handler } = makeService();
  const server = createServer((req, res) => {
    void handler(req, res, () => {
      t.notOk(res.hasHeader('Connection'));
      res.end('{}');
    });
  });
  const client = await connect(t, await listen(t, server), anyAnswer);
  client.send(upgrade({ target: '/elsewhere', body: '' }));
  t.match(await client.answer(), { body: '{}', headers: { connection: 'keep-alive' } });
});
