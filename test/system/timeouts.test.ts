import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { selfSigned } from '../certificate.js';
import { connect, exchange, isFailure, message, TOKEN } from '../client.js';
import { start } from './program.js';

const env = { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: 'plants.jsonl' };

/** From now on, the time limits of a server's connections are divided by 20. */
const HASTY_SERVERS = `
import http from 'node:http';
import https from 'node:https';
import { syncBuiltinESMExports } from 'node:module';
for (const module of [http, https]) {
  const { createServer } = module;
  module.createServer = (options) =>
    createServer(
      Object.fromEntries(
        Object.entries(options).map(([name, value]) =>
          /Timeout$|Interval$/.test(name) ? [name, value / 20] : [name, value],
        ),
      ),
    );
}
syncBuiltinESMExports();`;

t.test('a TLS handshake or a head that does not arrive in time is disconnected', async (t) => {
  const cwd = t.testdir({ ...selfSigned(), http: {}, https: {} });
  const tls = { PLANT_STORE_TLS_CERT: '../cert', PLANT_STORE_TLS_KEY: '../key' };
  const secure = await start(t, {
    cwd: join(cwd, 'https'),
    env: { ...env, ...tls },
    preload: HASTY_SERVERS,
  });
  const handshake = await connect(t, secure.port);
  const program = await start(t, { cwd: join(cwd, 'http'), env, preload: HASTY_SERVERS });
  const { port } = program;
  const silent = await connect(t, port);
  const begun = await connect(t, port);
  begun.send(message().subarray(0, 20));
  const used = await connect(t, port);
  used.send(message(), message().subarray(0, 20));
  t.match(await used.answer(), { status: 200 });
  const clients = { silent, begun, used };
  for (const { socket } of Object.values(clients)) socket.allowHalfOpen = true;
  const late = message({ body: '{"id":8,"name":"ivy"}' });
  for (const [what, client] of Object.entries(clients)) {
    isFailure(t, await client.answer(), { status: 408, headers: { connection: 'close' } }, what);
    client.send(what === 'silent' ? late : late.subarray(20), late);
    t.equal((await exchange(t, port, message())).status, 200);
    client.socket.end();
    await client.closed;
  }
  await handshake.closed;
  await program.stop('SIGTERM');
  const stored = readFileSync(join(cwd, 'http/plants.jsonl'), 'utf8');
  t.match(stored, /^.*"id":7.*\n$/, 'nothing that arrives after a 408 is stored');
});

const KEEP_ALIVE = { PLANT_STORE_KEEP_ALIVE_SECONDS: '600' };

/** A preload: the timer for idle connections fires on SIGUSR2, too. */
const IDLE_CHECK_ON_SIGNAL = `
const { setInterval } = globalThis;
globalThis.setInterval = (callback, ms, ...args) => {
  if (ms === 600_000)
    process.on('SIGUSR2', () => {
      callback();
      setImmediate(() => console.log('checked'));
    });
  return setInterval(callback, ms, ...args);
};`;

t.test(
  'a connection is closed if it has been idle between two checks, and not before',
  async (t) => {
    const program = await start(t, {
      cwd: t.testdir(),
      env: { ...env, ...KEEP_ALIVE },
      preload: IDLE_CHECK_ON_SIGNAL,
    });
    const [idle, used] = [await connect(t, program.port), await connect(t, program.port)];
    for (const client of [idle, used]) {
      client.send(message());
      t.match(await client.answer(), { status: 200 });
    }
    program.send('SIGUSR2');
    await program.says('stdout', /checked\n/);
    used.send(message());
    t.match(await used.answer(), { status: 200 });
    t.notOk(idle.socket.destroyed, 'one check closes nothing');
    program.send('SIGUSR2');
    await idle.closed;
    used.send(message());
    t.match(await used.answer(), { status: 200 }, 'the connection in use stays open');
    await program.stop('SIGTERM');
  },
);
