import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, truncateSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { HANG_MS } from '../../dist/log/commit.js';
import { SAME_SIGNAL_MS, STOPPING } from '../../dist/program/exit.js';
import {
  connect,
  exchange,
  message,
  refusesConnections,
  TOKEN,
  type Answer,
  type Client,
} from '../client.js';
import { ONE_THREAD } from '../faults/strace.js';
import {
  createDisk,
  hasten,
  skipTime,
  KILLED,
  LARGE_LOG,
  launch,
  onceReading,
  start,
  TIMES_OUT,
  toItself,
  type LaunchOptions,
  type Program,
} from './program.js';

const env = { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: 'plants.jsonl' };
const WELL = { code: 0, signal: null };
const FAILED = { code: 1, signal: null };
const MODIFIED = { code: 4, signal: null };

function startIn(t: Test, cwd: string, options: LaunchOptions = {}): Promise<Program> {
  return start(t, { ...options, cwd, env: { ...env, ...options.env } });
}

/** A client whose first plant has been stored. */
async function useOnce(t: Test, { port }: Program): Promise<Client> {
  const client = await connect(t, port);
  client.send(message());
  t.match(await client.answer(), { status: 200, headers: { connection: 'keep-alive' } });
  return client;
}

const CLIENTS = 64;

interface Load {
  /** The ids of all plants that were answered with 200. */
  readonly stored: number[];
  readonly refused: Answer[];
  /** The last answer of each client that got one with Connection: close. */
  readonly last: Answer[];
}

/** Sends plants from one client after another, as fast as each is answered, until it cannot. */
async function sendPlants(client: Client, load: Load, nextId: () => number): Promise<void> {
  for (;;) {
    const id = nextId();
    client.send(message({ body: `{"id":${id},"name":"fern"}` }));
    // The connection may have been closed before the request was there; then there is no answer.
    const answer = await client.answer().catch(() => undefined);
    if (!answer) return;
    if (answer.status === 200) load.stored.push(id);
    else load.refused.push(answer);
    if (answer.headers.connection === 'close') {
      load.last.push(answer);
      return;
    }
  }
}

/** Sends plants to a program until it ends. Calls `onId` with each id before the plant is sent. */
async function loadUntilTheEnd(
  t: Test,
  program: Program,
  onId: (id: number) => void,
): Promise<Load> {
  const load: Load = { stored: [], refused: [], last: [] };
  let id = 0;
  function nextId(): number {
    onId(id);
    return id++;
  }
  const clients = await Promise.all(
    Array.from({ length: CLIENTS }, () => connect(t, program.port)),
  );
  await Promise.all(clients.map((client) => sendPlants(client, load, nextId)));
  for (const { closed } of clients) await closed;
  t.strictSame(await program.ended, WELL);

  const lines = readFileSync(program.log, 'utf8').trimEnd().split('\n');
  const ids = lines.map((line) => (JSON.parse(line) as { id: number }).id);
  t.strictSame(
    ids.sort((a, b) => a - b),
    load.stored.sort((a, b) => a - b),
    'a plant is stored if and only if it got a 200',
  );
  t.strictSame(load.refused, [], 'no plant was refused');
  return load;
}

for (const signal of ['SIGTERM', 'SIGINT'] as const)
  t.test(`${signal} under load: a plant is stored if and only if it got a 200`, async (t) => {
    const program = await startIn(t, t.testdir());
    const { last } = await loadUntilTheEnd(t, program, (id) => {
      if (id === 1_000) program.send(signal);
    });
    t.equal(program.stderr, '');
    t.ok(last.length > 0, `${last.length} of ${CLIENTS} clients were told`);
    t.ok(last.every(({ status }) => status === 200));
  });

t.test('clients that hang do not delay the shutdown beyond its time limit', async (t) => {
  const program = await startIn(t, t.testdir(), {
    preload: skipTime(STOPPING.clientsMs, HANG_MS - 1),
    env: { PLANT_STORE_MAX_BODY: '33554432', PLANT_STORE_MAX_BUFFERED: '268435456' },
  });
  // Before anything connects: a busy machine may take longer for it than a connection may be silent.
  const name = 'x'.repeat(24_000_000);
  const large = message({ body: JSON.stringify({ id: 8, name }) });
  const sends = await connect(t, program.port);
  sends.send(message().subarray(0, -1));
  const reads = await connect(t, program.port);
  reads.send(large);
  await once(reads.socket, 'data');
  reads.socket.pause();

  t.strictSame(await program.stop('SIGTERM'), WELL);
  t.equal(program.stderr, '');
  await sends.closed;
  const stored = JSON.parse(readFileSync(program.log, 'utf8')) as { name: string };
  t.ok(stored.name === name, 'the plant that was answered is stored');
});

/** A preload: for how long after the first signal a second one does not count, in milliseconds. */
const secondSignalAfter = (ms: number): string => `const { setTimeout } = globalThis;
globalThis.setTimeout = (callback, delay, ...args) =>
  setTimeout(callback, delay === ${SAME_SIGNAL_MS} ? ${ms} : delay, ...args);`;

t.test('a second signal ends the program at once', async (t) => {
  const program = await startIn(t, t.testdir());
  const client = await useOnce(t, program);
  client.send(message().subarray(0, -1));
  program.send('SIGTERM');
  await refusesConnections(t, program.port);
  // Until then, all signals count as one.
  const again = setInterval(() => program.send('SIGINT'), SAME_SIGNAL_MS);
  t.teardown(() => clearInterval(again));
  t.strictSame(await program.ended, FAILED);
  await client.closed;
});

t.test(
  'signals that come at the same time are one: npm forwards a Ctrl-C that the terminal sends, too',
  async (t) => {
    const program = await startIn(t, t.testdir(), { preload: secondSignalAfter(2 ** 30) });
    const client = await useOnce(t, program);
    client.send(message().subarray(0, -1));
    program.send('SIGINT');
    await refusesConnections(t, program.port);
    program.send('SIGINT');
    program.send('SIGTERM');
    client.send(message().subarray(-1));
    t.match(await client.answer(), { status: 200, headers: { connection: 'close' } });
    t.strictSame(await program.ended, WELL);
  },
);

/** Starts a program whose disk hangs. */
async function startOnHungDisk(t: Test, preload = ''): Promise<Program> {
  const disk = createDisk(t);
  const options = { env: disk.env, preload: disk.preload + preload };
  const program = await startIn(t, disk.cwd, options);
  await disk.hang(program);
  return program;
}

/** Sends a plant, and returns once the program has read it. */
async function sendPlant(t: Test, { port }: Program): Promise<Client> {
  const client = await connect(t, port);
  client.send(message({ method: 'GET' }));
  t.match(await client.answer(), { status: 405 });
  client.send(message());
  t.equal((await exchange(t, port, message({ method: 'GET' }))).status, 405);
  return client;
}

t.test('if the disk hangs, the shutdown times out, and SIGKILL ends the program', async (t) => {
  // Not the timer of the log, which expires after `HANG_MS`.
  const program = await startOnHungDisk(t, skipTime(STOPPING.clientsMs, HANG_MS - 1));
  const client = await sendPlant(t, program);
  t.strictSame(await program.stop('SIGTERM'), KILLED);
  t.equal(program.stderr, TIMES_OUT);
  t.match(await client.answer(), { status: 503, headers: { connection: 'close' } });
});

/** Preloads that block the only thread for file operations while the program starts, and report that. */
const hangs: Record<string, { env?: Readonly<Record<string, string>>; preload: string }> = {
  'opening the log': {
    preload: `const { open: openFile } = promises;
      promises.open = (...args) => (block(), openFile(...args));`,
  },
  'creating the token file': {
    env: { PLANT_STORE_TOKEN: '' },
    preload: `const { writeFile } = promises;
      promises.writeFile = (...args) => (block(), writeFile(...args));`,
  },
  'resolving PLANT_STORE_HOST': {
    env: { PLANT_STORE_HOST: 'localhost' },
    preload: `const { lookup } = dns;
      dns.lookup = (...args) => (block(), lookup(...args));`,
  },
  'resolving PLANT_STORE_MONITOR_HOST': {
    env: { PLANT_STORE_MONITOR_HOST: 'localhost', PLANT_STORE_MONITOR_PORT: '0' },
    preload: `const { lookup } = dns;
      dns.lookup = (...args) => (block(), lookup(...args));`,
  },
};

const BLOCK = `import dns from 'node:dns';
import { open, promises } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import net from 'node:net';
function block() {
  open('pipe', 'r', () => undefined);
  setImmediate(() => console.error('it hangs'));
}`;
const EXPORTED = 'syncBuiltinESMExports();';

for (const [what, { env: given = {}, preload }] of Object.entries(hangs))
  t.test(`a signal ends a program that hangs while it starts: ${what}`, async (t) => {
    const cwd = t.testdir();
    execFileSync('mkfifo', [join(cwd, 'pipe')]);
    const { PLANT_STORE_TOKEN, ...rest } = { ...env, ...ONE_THREAD, ...given };
    const options = {
      env: PLANT_STORE_TOKEN ? { ...rest, PLANT_STORE_TOKEN } : rest,
      preload: [BLOCK, preload, EXPORTED, hasten(STOPPING.totalMs)].join('\n'),
      cwd,
    };
    const program = launch(t, options);
    await program.says('stderr', /it hangs/);
    program.send('SIGTERM');
    t.strictSame(await program.ended, KILLED);
    t.equal(program.stderr, `it hangs\n${TIMES_OUT}`);
  });

t.test('if the log is modified during shutdown, plants get 503, the exit code is 4', async (t) => {
  const program = await startIn(t, t.testdir());
  const client = await useOnce(t, program);
  const plant = message({ body: '{"id":8,"name":"fern"}' });
  client.send(plant.subarray(0, -1));
  program.send('SIGTERM');
  await refusesConnections(t, program.port);
  truncateSync(program.log, 10);
  client.send(plant.subarray(-1));
  t.match(await client.answer(), { status: 503, headers: { connection: 'close' } });
  t.strictSame(await program.ended, MODIFIED);
});

t.test('if the log is modified, all plants get 503 and the exit code is 4', async (t) => {
  const program = await startIn(t, t.testdir());
  const clients = [await useOnce(t, program), await useOnce(t, program)];
  truncateSync(program.log, 10);
  for (const [id, client] of clients.entries())
    client.send(message({ body: `{"id":1${id},"name":"fern"}` }));
  for (const client of clients) {
    const { status, headers } = await client.answer();
    t.match({ status, headers }, { status: 503, headers: { 'retry-after': '1' } });
    await client.closed;
  }
  t.strictSame(await program.ended, MODIFIED);
  t.equal(
    program.stderr,
    `plant-store: ${program.log}: the file was modified or replaced by another process; ` +
      'no plant is stored until the log is opened again\n',
  );
  t.equal(readFileSync(program.log, 'utf8'), '{"id":7,"n', 'no plant is added');
});

/** Each write to the log fails as on a broken disk. */
const BROKEN_DISK = `
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { promisify } from 'node:util';
async function fail() {
  throw Object.assign(new Error('EIO'), { code: 'EIO', errno: -5, syscall: 'write' });
}
fs.write = Object.assign(fail, { [promisify.custom]: fail });
syncBuiltinESMExports();`;

t.test('if a write to the log fails, the plant gets 503 and the exit code is 1', async (t) => {
  const program = await startIn(t, t.testdir(), { preload: BROKEN_DISK });
  const client = await connect(t, program.port);
  client.send(message());
  t.match(await client.answer(), { status: 503, headers: { 'retry-after': '1' } });
  t.strictSame(await program.ended, FAILED);
  t.match(program.stderr, /i\/o error/);
});

for (const signal of ['SIGTERM', 'SIGINT'] as const)
  t.test(`${signal} ends the program while it is reading the log`, async (t) => {
    const cwd = t.testdir({ 'plants.jsonl': LARGE_LOG });
    const program = launch(t, { cwd, env, preload: onceReading(toItself(signal)) });
    t.strictSame(await program.ended, WELL);
    t.equal(program.stdout, '');
    t.equal(readFileSync(join(cwd, 'plants.jsonl'), 'utf8'), LARGE_LOG);
  });

t.test('SIGHUP does not end the program while it is reading the log', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': LARGE_LOG });
  const program = await startIn(t, cwd, { preload: onceReading(toItself('SIGHUP')) });
  t.equal(program.plants, 2_000);
  t.strictSame(await program.stop('SIGTERM'), WELL);
});
