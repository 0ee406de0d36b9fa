import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { get } from 'node:https';
import { createServer, type Server } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { openPlantLog } from '../../../dist/index.js';
import { encodeRecord } from '../../../dist/log/encode.js';
import { serve } from '../../../dist/program/commands/serve.js';
import type { OpenedStore } from '../../../dist/program/open-store.js';
import { bind } from '../../../dist/program/server/bind.js';
import { readServerSettings } from '../../../dist/program/settings/rules.js';
import { selfSigned } from '../../helpers/certificate.js';
import { connect, message, openSocket, statusWith, TOKEN } from '../../helpers/client.js';
import { FERN, FERN_JSON, inJson } from '../../helpers/plants.js';
import {
  DONE,
  ENV,
  FAILED,
  expectFailedRunHere,
  expectFailedRun,
  launch,
  MISUSED,
  problemsOf,
  SERVER,
  start,
  startHere,
} from '../../helpers/program.js';
import { expireAtOnce, freePort, listen } from '../../helpers/service.js';
import { gatedStore } from '../../helpers/stores.js';

const RECORD = encodeRecord(FERN);

t.test('the executable file needs no settings, and prints no secret and no request', async (t) => {
  const cwd = t.testdir();
  const data = join(cwd, 'data');
  // As npx runs the program in a clone.
  const program = await start(t, { cwd, command: [SERVER] });
  t.match(readFileSync(`${data}/token`, 'utf8'), /^[\w-]{43}\n$/);
  for (const file of ['token', 'plants.jsonl'])
    t.equal(statSync(join(data, file)).mode & 0o777, 0o600, `only the owner can read the ${file}`);

  t.equal(await statusWith(t, program.port, 'another'), 401);
  t.equal(await statusWith(t, program.port, program.token), 200);
  t.equal(readFileSync(program.log, 'utf8'), RECORD);
  t.strictSame(await program.stop('SIGTERM'), DONE);
  t.equal(
    program.stdout,
    [
      `plant-store listening on http://127.0.0.1:${program.port}`,
      `log: ${data}/plants.jsonl`,
      'plants: 0',
      `token: ${data}/token`,
      '',
    ].join('\n'),
  );
  t.equal(program.stderr, '');
});

t.test('the next start finds the plants and the token, also through a symbolic link', async (t) => {
  const cwd = t.testdir({ disk: { token: 'the-token\n', 'plants.jsonl': RECORD } });
  symlinkSync('disk', join(cwd, 'data'));
  const program = await startHere(t, { cwd, env: {} });
  t.equal(program.log, `${cwd}/disk/plants.jsonl`, 'the log is reported by its real path');
  t.equal(program.plants, 1);
  t.equal(program.token, 'the-token');
  t.equal(await statusWith(t, program.port, 'the-token'), 200);
  t.equal(readFileSync(program.log, 'utf8'), RECORD, 'it is the same plant');
});

/** Serves a store that is opened by `open`, until the returned function is called. */
async function serveStore(t: Test, cwd: string, open: (stop: () => void) => Promise<OpenedStore>) {
  const lines: unknown[] = [];
  const stopping = new AbortController();
  const stop = (): void => stopping.abort();
  let onServing = (): void => undefined;
  const isServing = new Promise<void>((resolve) => (onServing = resolve));
  t.capture(console, 'log', (line: unknown) => lines.push(line));
  const given = { PLANT_STORE_PORT: '0', PLANT_STORE_FILE: join(cwd, 'data/log') };
  const ended = serve(
    await readServerSettings(given),
    {
      requested: stopping.signal,
      request: stop,
      onHangup: onServing,
    },
    () => open(stop),
  );
  await Promise.race([isServing, ended]);
  return {
    lines,
    port: Number(/\d+$/.exec(String(lines[0]))?.[0]),
    ended,
    stop,
  };
}

t.test('an address on which the program cannot listen is named, and the code is 1', async (t) => {
  const port = await listen(t, createHttpServer());
  const inUse = `cannot listen on 127.0.0.1, port ${port}: address already in use (EADDRINUSE)`;
  const elsewhere = 'cannot listen on 192.0.2.1, port 0: address not available (EADDRNOTAVAIL)';
  const faults = {
    PLANT_STORE_PORT: [`${port}`, inUse],
    PLANT_STORE_MONITOR_PORT: [`${port}`, inUse],
    PLANT_STORE_HOST: ['192.0.2.1', elsewhere],
    PLANT_STORE_MONITOR_HOST: ['192.0.2.1', elsewhere],
  } as const;
  for (const [name, [value, fault]] of Object.entries(faults)) {
    const env = { ...ENV, PLANT_STORE_MONITOR_PORT: '0', [name]: value };
    await expectFailedRunHere(t, FAILED, [`${name}: ${fault}`], { env });
  }
  const same = `${await freePort()}`;
  const env = { ...ENV, PLANT_STORE_MONITOR_PORT: same, PLANT_STORE_PORT: same };
  const taken = `PLANT_STORE_PORT: ${inUse.replace(`${port}`, same)}`;
  await expectFailedRunHere(t, FAILED, [taken], { env });
});

t.test('an inherited socket must be a listening TCP socket', async (t) => {
  const descriptor = openSync('/dev/null', 'r');
  t.teardown(() => closeSync(descriptor));
  const fault = `LISTEN_FDS: cannot listen on descriptor ${descriptor}: invalid argument (EINVAL)`;
  const binding = bind(createHttpServer(), { fd: descriptor }, 'PLANT_STORE_');
  t.strictSame(await problemsOf(binding), [fault]);

  // An abstract Unix socket, which is in no folder.
  const listener = createServer().listen(`\0plant-store-${process.pid}`);
  t.teardown(() => listener.close());
  await once(listener, 'listening');
  const { _handle } = listener as Server & { readonly _handle: { readonly fd: number } };
  await expectFailedRun(t, MISUSED, ['LISTEN_FDS: cannot listen on descriptor 3: it is not TCP'], {
    cwd: t.testdir(),
    env: { ...ENV, LISTEN_FDS: '1' },
    under: ['env', '-u', 'PLANT_STORE_PORT'],
    command: ['bash', '-euc', 'LISTEN_PID=$$ exec "$@"', 'bash', process.execPath, SERVER],
    descriptor: _handle.fd,
  });
});

t.test('a token file that is written while the log is read is used', async (t) => {
  const cwd = t.testdir({ data: {} });
  const { port, ended, stop } = await serveStore(t, cwd, async () => {
    writeFileSync(join(cwd, 'data/token'), 'new');
    const log = await openPlantLog(join(cwd, 'data/log'));
    return { store: log, place: log.path, log };
  });
  t.equal(await statusWith(t, port, 'new'), 200);
  stop();
  t.equal(await ended, 0);
});

t.test('a database is served until a signal, also an earlier one, and closed', async (t) => {
  const cwd = t.testdir({ data: { token: TOKEN } });
  let closed = 0;
  const { lines, ended } = await serveStore(t, cwd, async (stop) => {
    process.nextTick(stop);
    const close = async (): Promise<void> => {
      closed++;
    };
    const check = async (): Promise<void> => undefined;
    const plants = () => t.fail('no plant is read') as never;
    return { store: { ...gatedStore(), check, plants, close }, place: 'database: db:5432/plants' };
  });
  t.equal(lines[1], 'database: db:5432/plants');
  t.equal(await ended, 0);
  t.equal(closed, 1);
});

t.test('a start that fails while it is interrupted says why', async (t) => {
  const cwd = t.testdir({ data: { token: TOKEN } });
  const failure = new Error('the log is damaged');
  const start = serveStore(t, cwd, async (stop) => {
    stop();
    throw failure;
  });
  await t.rejects(start, failure);
});

t.test('if the log is modified, all plants get 503, and the program ends with 1', async (t) => {
  const program = await startHere(t);
  const clients = [await connect(t, program.port), await connect(t, program.port)];
  for (const client of clients) {
    client.send(message());
    t.match(await client.answer(), { status: 200 });
  }
  truncateSync(program.log, 10);
  for (const [n, client] of clients.entries())
    client.send(message({ body: inJson({ ...FERN, id: BigInt(10 + n) }) }));
  for (const client of clients) {
    t.match(await client.answer(), { status: 503, headers: { 'retry-after': '1' } });
    await client.closed;
  }
  t.strictSame(await program.ended, { code: FAILED, signal: null });
  t.equal(
    program.stderr,
    `plant-store: ${program.log}: the file was modified, replaced or removed by another process; ` +
      'if it was replaced or truncated, put it back; no plant is stored until the log is opened again\n',
  );
  t.equal(readFileSync(program.log, 'utf8'), '{"id":7,"n', 'no plant is added');
});

t.test('a log that was emptied while it was open is served by no later start', async (t) => {
  const cwd = t.testdir();
  const program = await startHere(t, { cwd });
  const { log } = program;
  t.equal(await statusWith(t, program.port, TOKEN), 200);
  truncateSync(log);
  t.strictSame(await program.stop('SIGTERM'), { code: FAILED, signal: null });
  const message = `PLANT_STORE_FILE: ${log}: the file was modified, replaced or removed while it was open; put it back if it was replaced, truncated or removed, check it with the command "verify", and then remove ${log}.modified`;
  await expectFailedRunHere(t, FAILED, [message], { cwd });
  t.equal(readFileSync(log, 'utf8'), '');
});

t.test('SIGHUP reads tokens again without printing them, or keeps the old ones', async (t) => {
  const cwd = t.testdir({ data: { token: 'old\n' } });
  const data = join(cwd, 'data');
  const program = await startHere(t, { cwd, env: {} });
  /** Sends SIGHUP. Checks what is reported, and then the status of each token. */
  async function expectAfterHangup(
    reported: string,
    statuses: Record<string, number>,
  ): Promise<void> {
    program.send('SIGHUP');
    await program.says('stderr', new RegExp(`token: ${reported}\n$`));
    for (const [token, status] of Object.entries(statuses))
      t.equal(await statusWith(t, program.port, token), status, `${reported}: ${token}`);
  }
  rmSync(join(data, 'token'));
  await expectAfterHangup('no such file .+; the tokens stay as they were', { old: 200, new: 401 });
  t.notOk(readdirSync(data).includes('token'), 'none is created');
  writeFileSync(join(data, 'token'), 'new\nnewer\n');
  await expectAfterHangup('accepts 2 tokens', { old: 401, new: 200, newer: 200 });
});

t.test('while reading tokens hangs, plants are stored, and a stop does not wait', async (t) => {
  const cwd = t.testdir({ data: { token: 'old\n' }, token: 'new\n' });
  const [file, pipe] = [join(cwd, 'data/token'), join(cwd, 'pipe')];
  const program = await startHere(t, { cwd, env: {} });
  // Opening a FIFO takes a thread for file operations until it has a writer. There are four
  // threads.
  execFileSync('mkfifo', [pipe]);
  renameSync(pipe, file);
  const TIMES = 5;
  for (let times = 0; times < TIMES; times++) program.send('SIGHUP');
  t.equal(await statusWith(t, program.port, 'old'), 200);
  const writer = openSync(file, 'w');
  renameSync(join(cwd, 'token'), file);
  writeFileSync(writer, 'between');
  closeSync(writer);
  await program.says('stderr', new RegExp(`^(plant-store: ${file}: accepts 1 token\n){${TIMES}}$`));
  t.equal(await statusWith(t, program.port, 'new'), 200);

  rmSync(file);
  execFileSync('mkfifo', [file]);
  program.send('SIGHUP');
  t.strictSame(await program.stop('SIGTERM'), DONE, 'a stop does not wait for it');
  closeSync(openSync(file, 'w'));
});

/** Whether a client that trusts only this certificate accepts the certificate of the server. */
function isTrusted(port: number, ca: string): Promise<boolean> {
  const options = { host: '127.0.0.1', port, ca, servername: 'localhost', agent: false as const };
  return new Promise((resolve) => {
    get(options, (res) => {
      res.resume();
      resolve(true);
    }).on('error', () => resolve(false));
  });
}

t.test('SIGHUP renews the certificate, and open connections stay', async (t) => {
  const [old, renewed, expired] = [selfSigned(), selfSigned(2101), selfSigned(2001)];
  const cwd = t.testdir({ tokens: TOKEN, cert: old.cert, key: old.key });
  const env = {
    PLANT_STORE_TOKEN_FILE: 'tokens',
    PLANT_STORE_TLS_CERT: 'cert',
    PLANT_STORE_TLS_KEY: 'key',
  };
  const program = await startHere(t, { cwd, env });
  await program.says('stdout', /\ncertificate: .*cert, valid until 2100-01-01T00:00:00.000Z\n/);
  const kept = await openSocket(program.port, true);

  writeFileSync(join(cwd, 'cert'), renewed.cert);
  program.send('SIGHUP');
  const misfit = `${cwd}/key: is not the private key of the first certificate in ${cwd}/cert; the certificate stays as it was`;
  await program.says('stderr', /stays as it was\n/);
  t.equal(program.stderr, `plant-store: ${cwd}/tokens: accepts 1 token\nplant-store: ${misfit}\n`);
  t.equal(await isTrusted(program.port, old.cert), true);

  writeFileSync(join(cwd, 'key'), renewed.key);
  // Invalid tokens do not keep the certificate from being renewed.
  writeFileSync(join(cwd, 'tokens'), 'not a token');
  program.send('SIGHUP');
  await program.says(
    'stderr',
    /the tokens stay as they were\n.*cert: the certificate and its key were read again: valid until 2101-01-01T00:00:00.000Z\n/,
  );
  t.equal(await isTrusted(program.port, renewed.cert), true);
  t.equal(await isTrusted(program.port, old.cert), false);
  kept.write(message());
  const [answer] = (await once(kept, 'data')) as [Buffer];
  t.match(String(answer), / 200 OK\r\n/, 'on a connection that was there before');

  for (const name of ['cert', 'key'] as const) writeFileSync(join(cwd, name), expired[name]);
  program.send('SIGHUP');
  await program.says('stderr', /cert: .* read again: expired at 2001-01-01T00:00:00.000Z\n/);
});

t.test('tokens of the environment are not printed, and SIGHUP cannot renew them', async (t) => {
  const program = await startHere(t);
  program.send('SIGHUP');
  const report = 'SIGHUP: the tokens in PLANT_STORE_TOKEN change only with a restart';
  await t.resolves(program.says('stderr', RegExp(`^plant-store: ${report}\n$`)));
  t.notMatch(program.stdout, TOKEN);
});

t.test('the program serves with stdout and stderr closed', async (t) => {
  const cwd = t.testdir({ data: { token: 'old\n' } });
  const PLANT_STORE_PORT = String(await freePort());
  const program = launch(t, { cwd, env: { PLANT_STORE_PORT } });
  program.leave('stdout');
  program.leave('stderr');
  const port = Number(PLANT_STORE_PORT);
  while ((await statusWith(t, port, 'old').catch(() => 0)) !== 200);
  writeFileSync(join(cwd, 'data/token'), 'old\nnew\n');
  program.send('SIGHUP');
  while ((await statusWith(t, port, 'new')) !== 200);
  program.send('SIGTERM');
  t.strictSame(await program.ended, DONE);
});

const addresses = Object.values(networkInterfaces()).flat();
const noIPv6 = !addresses.some((each) => each?.address === '::1') && 'needs IPv6';

t.test('the program listens only on the configured address', { skip: noIPv6 }, async (t) => {
  const program = await startHere(t, { env: { ...ENV, PLANT_STORE_HOST: '::1' } });
  t.equal(program.url, `http://[::1]:${program.port}`);
  await t.rejects(connect(t, program.port), { code: 'ECONNREFUSED' });
});

t.test('the settings for the log, the limits and idle connections are applied', async (t) => {
  const env = {
    ...ENV,
    PLANT_STORE_FILE: 'a/b/log',
    PLANT_STORE_MAX_BODY: String(Buffer.byteLength(FERN_JSON)),
    PLANT_STORE_MAX_BUFFERED: String(8 * Buffer.byteLength(FERN_JSON)),
    PLANT_STORE_KEEP_ALIVE_SECONDS: '12',
  };
  const cwd = t.testdir({ a: { b: {} } });
  const { port, log } = await startHere(t, { cwd, env });
  t.equal(log, join(cwd, 'a/b/log'));
  const client = await connect(t, port);
  client.send(message({ body: `${FERN_JSON} ` }));
  t.match(await client.answer(), { status: 400, body: '"error":413' });
  client.send(message());
  t.match(await client.answer(), { status: 200, headers: { 'keep-alive': 'timeout=12' } });
  const pending = await connect(t, port);
  pending.send(message({ headers: { Expect: '100-continue' } }).subarray(0, -1));
  t.match(await pending.answer(), { status: 100 });
  client.send(message());
  t.match(await client.answer(), { status: 503 }, 'the memory is enough for one request');
  pending.send('}');
  t.match(await pending.answer(), { status: 200 });
});

t.test('a body that does not arrive within 30 s is answered 408', async (t) => {
  const expired = expireAtOnce(t, 30_000);
  const client = await connect(t, (await startHere(t)).port);
  client.send(message().subarray(0, -1));
  t.match(await client.answer(), { status: 408 });
  t.equal(expired(), 1, 'long before the 60 s for a request');
});
