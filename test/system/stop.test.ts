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
import { DONE, ENV, FAILED, hasten, KILLED, start, TIMES_OUT, type Program } from './program.js';

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

t.test('SIGTERM under load: a plant is stored if and only if it got a 200', async (t) => {
  const program = await start(t, { cwd: t.testdir(), env: ENV });
  const [stored, refused]: [number[], Answer[]] = [[], []];
  let [nextId, told] = [0, 0];
  /** Sends plants, as fast as each is answered, until the client is told to stop. */
  async function sendPlants(client: Client): Promise<void> {
    for (;;) {
      const id = nextId++;
      if (id === 1_000) program.send('SIGTERM');
      client.send(message({ body: `{"id":${id},"name":"fern"}` }));
      // The connection may have been closed before the request was there; then there is no answer.
      const answer = await client.answer().catch(() => undefined);
      if (!answer) return;
      if (answer.status === 200) stored.push(id);
      else refused.push(answer);
      if (answer.headers.connection === 'close') {
        told++;
        return;
      }
    }
  }
  const clients = await Promise.all(
    Array.from({ length: CLIENTS }, () => connect(t, program.port)),
  );
  await Promise.all(clients.map(sendPlants));
  for (const { closed } of clients) await closed;
  t.strictSame(await program.ended, DONE);
  t.equal(program.stderr, '');
  t.ok(told > 0, `${told} of ${CLIENTS} clients were told`);
  t.strictSame(refused, [], 'no plant was refused');

  const lines = readFileSync(program.log, 'utf8').trimEnd().split('\n');
  const ids = lines.map((line) => (JSON.parse(line) as { id: number }).id);
  t.strictSame(new Set(ids), new Set(stored));
  t.equal(ids.length, stored.length);
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

/** A preload: from SIGUSR2 on, no file operation returns. Opening a FIFO blocks the only thread for them. */
const HANGS = `import { open } from 'node:fs';
process.on('SIGUSR2', () => {
  open('pipe', 'r', () => undefined);
  console.log('the disk hangs');
});`;

t.test('if the disk hangs, the shutdown times out, and SIGKILL ends the program', async (t) => {
  const cwd = t.testdir();
  execFileSync('mkfifo', [join(cwd, 'pipe')]);
  const preload = HANGS + hasten(STOPPING.totalMs);
  const program = await start(t, { cwd, env: { ...ENV, ...ONE_THREAD }, preload });
  program.send('SIGUSR2');
  await program.says('stdout', /the disk hangs/);
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
