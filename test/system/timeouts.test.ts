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

t.test('a connection is closed once it has been idle for the time that is set', async (t) => {
  const seconds = { PLANT_STORE_KEEP_ALIVE_SECONDS: '1' };
  const { port } = await start(t, { cwd: t.testdir(), env: { ...env, ...seconds } });
  const client = await connect(t, port);
  const began = performance.now();
  client.send(message());
  t.match(await client.answer(), { status: 200, headers: { 'keep-alive': 'timeout=1' } });
  await client.closed;
  t.ok(performance.now() - began >= 1_000);
});
