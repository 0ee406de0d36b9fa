import { getEventListeners } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';

import t, { type Test } from 'tap';

import { PlantStoreError } from '../../dist/index.js';
import { createConnector } from '../../dist/postgres/connection.js';
import { isTransient, openPostgresStore, readPostgresPlants } from '../../dist/postgres/index.js';
import { beginStoring, openSession } from '../../dist/postgres/session.js';
import { INSERT } from '../../dist/postgres/statements.js';
import { expireAtOnce, freePort, listen } from '../helpers/service.js';
import { collect } from '../helpers/stores.js';

/** Starts a stand-in for a server, and returns its host and port. */
async function standIn(t: Test, answer: (socket: Socket) => void): Promise<string> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => answer(socket));
  });
  return `127.0.0.1:${await listen(t, server)}`;
}

/** Starts a stand-in that answers with an error. */
function refusing(t: Test, code: string): Promise<string> {
  const fields = Buffer.from(`SFATAL\0VFATAL\0C${code}\0Mof ${code}\0\0`);
  const head = Buffer.from('E\0\0\0\0');
  head.writeInt32BE(fields.length + 4, 1);
  return standIn(t, (socket) => socket.end(Buffer.concat([head, fields])));
}

/** The bytes that let a client in. */
const WELCOME = Buffer.from('R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I', 'latin1');
/** The answer to a statement, without rows. */
const DONE = Buffer.from('1\0\0\0\x042\0\0\0\x04n\0\0\0\x04C\0\0\0\x08SET\0Z\0\0\0\x05I', 'latin1');

/**
 * Starts a stand-in that answers the first statements of each client, and hangs up at the next
 * statement.
 */
async function answering(t: Test, statements: number) {
  let clients = 0;
  const host = await standIn(t, (socket) => {
    clients++;
    socket.write(WELCOME);
    let left = statements;
    socket.on('data', () => (left-- > 0 ? socket.write(DONE) : socket.end()));
  });
  return { host, clients: () => clients };
}

/** The error with which openPostgresStore rejects for these hosts and parameters of the URL. */
async function failure(hosts: string, query = '', timeoutMs = 60_000): Promise<Error> {
  const opening = openPostgresStore({ url: `postgres://me@${hosts}/plants${query}`, timeoutMs });
  return opening.then(
    () => new Error('it is open'),
    (error: unknown) => error as Error,
  );
}

t.test('an error is transient if it may pass by itself', async (t) => {
  const passing: Record<string, Error> = {
    'no server': await failure(`127.0.0.1:${await freePort()}`),
    'no such name': await failure('plants.invalid'),
    'no socket': await failure(encodeURIComponent(t.testdir())),
    reset: await failure(await standIn(t, (socket) => socket.resetAndDestroy())),
    ended: await failure(await standIn(t, (socket) => socket.end())),
    silent: await failure(await standIn(t, () => undefined), '', 300),
  };
  const lasting: Record<string, Error> = {
    'no TLS': await failure(await standIn(t, (socket) => socket.end('N')), '?sslmode=verify-full'),
    'no URL': await failure('#'),
    'without a cause': new PlantStoreError('unavailable', ''),
  };
  const codes = ['08P01', '25006', '40001', '40P01', '53300', '55P03', '57014', '57P03', 'XX000'];
  for (const code of codes) passing[code] = await failure(await refusing(t, code));
  for (const code of ['28P01', '28000', '3D000', '42501', '42P01'])
    lasting[code] = await failure(await refusing(t, code));
  for (const [code, syscall] of [
    ['EHOSTUNREACH', 'connect'],
    ['EAI_AGAIN', 'getaddrinfo'],
    ['ETIMEDOUT', 'read'],
    ['EPIPE', 'write'],
    // The right to use a socket is missing; a certificate is a folder.
    ['EACCES', 'connect'],
    ['EISDIR', 'read'],
  ] as const) {
    const cause = Object.assign(new Error(), { code, syscall });
    const isLasting = code === 'EACCES' || code === 'EISDIR';
    (isLasting ? lasting : passing)[code] = new PlantStoreError('unavailable', '', { cause });
  }
  for (const [what, error] of Object.entries(passing)) t.ok(isTransient(error), what);
  for (const [what, error] of Object.entries(lasting)) t.notOk(isTransient(error), what);
  t.notOk(isTransient(undefined));
});

t.test('a reading that is aborted rejects with the reason, whatever that is', async (t) => {
  const url = 'postgres://me@127.0.0.1/plants';
  const reasons = { null: null, stop: 'stop', over: new Error('over') };
  for (const [words, reason] of Object.entries(reasons)) {
    const reading = collect(readPostgresPlants({ url, signal: AbortSignal.abort(reason) }));
    const error: unknown = await reading.catch((error: unknown) => error);
    t.match(error, { code: 'unavailable', message: `127.0.0.1:5432/plants: ${words}` });
    t.equal((error as Error).cause, reason);
  }
});

t.test('with several hosts, each error is named, and one transient error is enough', async (t) => {
  const away = `127.0.0.1:${await freePort()}`;
  const password = await refusing(t, '28P01');
  for (const hosts of [`${away},${password}`, `${password},${away}`]) {
    const error = await failure(hosts);
    t.ok(isTransient(error), error.message);
    t.match(error.message, `${away}: connect ECONNREFUSED`);
    t.match(error.message, `${password}: of 28P01`);
  }
  t.notOk(isTransient(await failure(`${password},${password}`)));
});

t.test('the time for connecting, 5 s by default, is for all hosts together', async (t) => {
  const silent = await standIn(t, () => undefined);
  const started = expireAtOnce(t, 1_000);
  const url = `postgres://me@${Array(5).fill(silent).join()}/plants`;
  const message = /: (?:[^;]*timeout expired(?:; |$)){5}/;
  await t.rejects(openPostgresStore({ url }), { message });
  t.equal(started(), 5);
  await t.rejects(collect(readPostgresPlants({ url })), { message });
  t.equal(started(), 10);
});

t.test('a session that is not opened in time, or refused, leaves no listener', async (t) => {
  const { signal } = new AbortController();
  const options = {
    password: '',
    connectMs: 30_000,
    queryMs: 60_000,
    begin: beginStoring(60_000),
    signal,
  };
  const hanging = await standIn(t, (socket) => socket.write(WELCOME));
  expireAtOnce(t, 60_000);
  for (const [host, message] of [
    [hanging, 'Query read timeout'],
    [await refusing(t, '57P03'), 'of 57P03'],
  ] as const) {
    await t.rejects(openSession(`postgres://me@${host}/plants`, options), { message });
    t.strictSame(getEventListeners(signal, 'abort'), []);
  }
});

t.test('a session that the server ends leaves no listener', async (t) => {
  const { signal } = new AbortController();
  const options = { password: '', connectMs: 60_000, queryMs: 60_000, signal };
  const host = await standIn(t, (socket) => {
    socket.write(WELCOME);
    socket.once('data', () => socket.end(DONE));
  });
  const session = await openSession(`postgres://me@${host}/plants`, {
    ...options,
    begin: beginStoring(60_000),
  });
  for (let turns = 0; turns < 1_000_000 && !session.isClosed(); turns++) await nextTurn();
  t.strictSame(getEventListeners(signal, 'abort'), []);
});

/** Creates connections to stand-ins, which close at the end of the test. */
function connector(t: Test, ...hosts: readonly string[]) {
  const ending = new AbortController();
  t.teardown(() => ending.abort());
  return createConnector(
    hosts.map((host) => new URL(`postgres://me@${host}/plants`)),
    {
      password: '',
      connectMs: 60_000,
      queryMs: 60_000,
      begin: beginStoring(60_000),
      signal: ending.signal,
    },
  );
}

const LOST = { message: 'Connection terminated unexpectedly' };

t.test(
  'a statement that may have run, because its answer was lost, is sent to no other host',
  async (t) => {
    const first = await answering(t, 1);
    const second = await answering(t, 2);
    const connection = connector(t, first.host, second.host)();
    await t.rejects(connection.query(INSERT, '[]'), LOST);
    t.equal(second.clients(), 0);
    t.strictSame(await connection.query(INSERT, '[]'), [], 'the next one is');
    t.strictSame([first.clients(), second.clients()], [1, 1]);
  },
);

t.test('a host that one connection has left is not tried again by the others', async (t) => {
  const first = await answering(t, 2);
  const second = await answering(t, 0);
  const third = await answering(t, 2);
  const createConnection = connector(t, first.host, second.host, third.host);
  const connections = [createConnection(), createConnection()];
  for (const connection of connections) await connection.query(INSERT, '[]');
  for (const connection of connections) {
    await t.rejects(connection.query(INSERT, '[]'), LOST);
    await connection.query(INSERT, '[]');
  }
  t.strictSame([first.clients(), second.clients(), third.clients()], [2, 1, 2]);
});
