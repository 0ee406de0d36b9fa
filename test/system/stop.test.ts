import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { SAME_SIGNAL_MS, STOPPING } from '../../dist/program/exit.js';
import {
  connect,
  exchange,
  message,
  refusesConnections,
  type Answer,
  type Client,
} from '../client.js';
import { ONE_THREAD } from '../faults/strace.js';
import {
  createDisk,
  DONE,
  ENV,
  FAILED,
  hasten,
  KILLED,
  LARGE_LOG,
  launch,
  onceReading,
  start,
  TIMES_OUT,
  toItself,
  type Program,
} from './program.js';

/** Starts a program and a client. Its first plant is stored, and most of the next one has been sent. */
async function startWithClient(
  t: Test,
  preload = '',
): Promise<{ program: Program; client: Client }> {
  const program = await start(t, { cwd: t.testdir(), env: ENV, preload });
  const client = await connect(t, program.port);
  client.send(message(), message().subarray(0, -1));
  t.match(await client.answer(), { status: 200, headers: { connection: 'keep-alive' } });
  return { program, client };
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
  t.strictSame(await program.ended, DONE);

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

t.test('SIGTERM under load: a plant is stored if and only if it got a 200', async (t) => {
  const program = await start(t, { cwd: t.testdir(), env: ENV });
  const { last } = await loadUntilTheEnd(t, program, (id) => {
    if (id === 1_000) program.send('SIGTERM');
  });
  t.equal(program.stderr, '');
  t.ok(last.length > 0, `${last.length} of ${CLIENTS} clients were told`);
  t.ok(last.every(({ status }) => status === 200));
});

/** A preload: for how long after the first signal a second one does not count, in milliseconds. */
const secondSignalAfter = (ms: number): string => `const { setTimeout } = globalThis;
globalThis.setTimeout = (callback, delay, ...args) =>
  setTimeout(callback, delay === ${SAME_SIGNAL_MS} ? ${ms} : delay, ...args);`;

t.test('a second signal ends the program at once', async (t) => {
  const { program, client } = await startWithClient(t);
  program.send('SIGTERM');
  await refusesConnections(t, program.port);
  // Until then, all signals count as one.
  const again = setInterval(() => program.send('SIGINT'), SAME_SIGNAL_MS);
  t.teardown(() => clearInterval(again));
  t.strictSame(await program.ended, { code: FAILED, signal: null });
  await client.closed;
});

t.test(
  'signals that come at the same time are one: npm forwards a Ctrl-C that the terminal sends, too',
  async (t) => {
    const { program, client } = await startWithClient(t, secondSignalAfter(2 ** 30));
    program.send('SIGINT');
    await refusesConnections(t, program.port);
    program.send('SIGINT');
    program.send('SIGTERM');
    client.send(message().subarray(-1));
    t.match(await client.answer(), { status: 200, headers: { connection: 'close' } });
    t.strictSame(await program.ended, DONE);
  },
);

t.test('if the disk hangs, the shutdown times out, and SIGKILL ends the program', async (t) => {
  const disk = createDisk(t);
  const preload = disk.preload + hasten(STOPPING.totalMs);
  const program = await start(t, { cwd: disk.cwd, env: { ...ENV, ...disk.env }, preload });
  await disk.hang(program);
  const client = await connect(t, program.port);
  client.send(message({ method: 'GET' }));
  t.match(await client.answer(), { status: 405 });
  client.send(message());
  // The plant has been read once a later request is answered.
  t.equal((await exchange(t, program.port, message({ method: 'GET' }))).status, 405);
  t.strictSame(await program.stop('SIGTERM'), KILLED);
  t.equal(program.stderr, TIMES_OUT);
  t.match(await client.answer(), { status: 503, headers: { connection: 'close' } });
});

/** Blocks the only thread for file operations when the program opens its log, and reports that. */
const HANGS_AT_START = `import { open, promises } from 'node:fs';
const { open: openFile } = promises;
promises.open = (...args) => {
  open('pipe', 'r', () => undefined);
  setImmediate(() => console.error('it hangs'));
  return openFile(...args);
};`;

t.test('a signal ends a program that hangs while it starts', async (t) => {
  const cwd = t.testdir();
  execFileSync('mkfifo', [join(cwd, 'pipe')]);
  const preload = HANGS_AT_START + hasten(STOPPING.totalMs);
  const program = launch(t, { cwd, env: { ...ENV, ...ONE_THREAD }, preload });
  await program.says('stderr', /it hangs/);
  program.send('SIGTERM');
  t.strictSame(await program.ended, KILLED);
  t.equal(program.stderr, `it hangs\n${TIMES_OUT}`);
});

t.test('SIGINT ends the program while it is reading the log', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': LARGE_LOG });
  const program = launch(t, { cwd, env: ENV, preload: onceReading(toItself('SIGINT')) });
  t.strictSame(await program.ended, DONE);
  t.equal(program.stdout, '');
  t.equal(readFileSync(join(cwd, 'plants.jsonl'), 'utf8'), LARGE_LOG);
});
