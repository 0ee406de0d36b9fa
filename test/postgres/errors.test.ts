import { createServer, type Socket } from 'node:net';

import t, { type Test } from 'tap';

import { PlantStoreError } from '../../dist/index.js';
import { isTransient, openPostgresStore } from '../../dist/postgres/index.js';
import { freePort, listen } from '../service.js';

/** Starts a stand-in for a server, and returns its host and port. */
async function standIn(t: Test, answer: (socket: Socket) => void): Promise<string> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => answer(socket));
  });
  return `127.0.0.1:${await listen(t, server)}`;
}

/** Answers the start of a connection with an error. */
function refuse(code: string): (socket: Socket) => void {
  const fields = Buffer.from(`SFATAL\0VFATAL\0C${code}\0Mof ${code}\0\0`);
  const head = Buffer.from('E\0\0\0\0');
  head.writeInt32BE(fields.length + 4, 1);
  return (socket) => socket.end(Buffer.concat([head, fields]));
}

/** How openPostgresStore fails with these hosts and parameters of the URL. */
async function failure(
  t: Test,
  hosts: string,
  query = '',
  timeoutMs = 60_000,
): Promise<PlantStoreError> {
  const opening = openPostgresStore({ url: `postgres://me@${hosts}/plants${query}`, timeoutMs });
  const error: unknown = await opening.catch((error: unknown) => error);
  t.ok(error instanceof PlantStoreError && error.code === 'unavailable');
  return error as PlantStoreError;
}

t.test('an error that may pass by itself is transient', async (t) => {
  const hosts: Record<string, string> = {
    'no server': `127.0.0.1:${await freePort()}`,
    'no name': 'plants.invalid',
    'no socket': encodeURIComponent(t.testdir()),
    'a server that resets the connection': await standIn(t, (socket) => socket.resetAndDestroy()),
    'a server that ends the connection': await standIn(t, (socket) => socket.end()),
  };
  for (const code of ['57P01', '57P02', '57P03', '53300', '08006', '08P01'])
    hosts[code] = await standIn(t, refuse(code));
  for (const [what, host] of Object.entries(hosts)) {
    const error = await failure(t, host);
    t.ok(isTransient(error), `${what}: ${error.message}`);
  }
  const silent = await standIn(t, () => undefined);
  t.ok(isTransient(await failure(t, silent, '', 300)), 'a server that does not answer');
  for (const code of ['ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH', 'EAI_AGAIN']) {
    const cause = Object.assign(new Error('of the network'), { code });
    t.ok(isTransient(new PlantStoreError('unavailable', '', { cause })), code);
  }
});

t.test('an error that lasts until somebody changes something is not transient', async (t) => {
  for (const code of ['28P01', '28000', '3D000', '42501', '42P01', '57P04', 'XX000']) {
    const error = await failure(t, await standIn(t, refuse(code)));
    t.notOk(isTransient(error), error.message);
  }
  const withoutTls = await standIn(t, (socket) => socket.end('N'));
  t.notOk(isTransient(await failure(t, withoutTls, '?sslmode=verify-full')), 'no TLS');
  const invalid: unknown = await openPostgresStore({ url: 'plants' }).catch(
    (error: unknown) => error,
  );
  for (const error of [invalid, new PlantStoreError('unavailable', 'without a cause'), undefined])
    t.notOk(isTransient(error), String(error));
});

t.test('of several hosts, each error is named, and one that is transient is enough', async (t) => {
  const [refused, password] = await Promise.all([freePort(), standIn(t, refuse('28P01'))]);
  const away = `127.0.0.1:${refused}`;
  for (const hosts of [`${away},${password}`, `${password},${away}`]) {
    const error = await failure(t, hosts);
    t.ok(isTransient(error), error.message);
    t.match(error.message, `${away}: connect ECONNREFUSED`);
    t.match(error.message, `${password}: of 28P01`);
  }
  t.notOk(isTransient(await failure(t, `${password},${password}`)));
});
