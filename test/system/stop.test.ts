import { execFileSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { SAME_SIGNAL_MS, SHUTDOWN_MS } from '../../dist/program/signals.js';
import { connect, exchange, message, refusesConnections, TOKEN, type Client } from '../client.js';
import { ONE_THREAD } from '../faults/strace.js';
import {
  changeTimers,
  DONE,
  ENV,
  hasten,
  KILLED,
  launch,
  NO_EXIT,
  start,
  TIMES_OUT,
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

/** A preload: for how long after the first signal a second one does not count, in milliseconds. */
const secondSignalAfter = (ms: number): string => `const { setTimeout } = globalThis;
globalThis.setTimeout = (callback, delay, ...args) =>
  setTimeout(callback, delay === ${SAME_SIGNAL_MS} ? ${ms} : delay, ...args);`;

/** A preload: from SIGUSR2 on, no file operation returns. Opening a FIFO blocks the only thread for them. */
const HANGS = `import { open } from 'node:fs';
${NO_EXIT}
process.on('SIGUSR2', () => {
  open('pipe', 'r', () => undefined);
  console.log('the disk hangs');
});`;

/** A preload: to resolve a name takes a thread, and never ends. */
const RESOLVER_HANGS = `import dns from 'node:dns';
import { open } from 'node:fs';
dns.lookup = () => {
  open('pipe', 'r', () => undefined);
  setImmediate(() => console.error('the resolver hangs'));
};`;

/** A preload: of the timers that are set from now on, those of more than 100 ms never fire. */
const ONLY_SHORT_TIMERS = changeTimers('ms > 100 ? 2 ** 30 : ms');

t.test('a second signal after 0.1 s ends the program, even if the disk hangs', async (t) => {
  const cwd = t.testdir();
  execFileSync('mkfifo', [join(cwd, 'pipe')]);
  const preload = HANGS + ONLY_SHORT_TIMERS;
  const program = await start(t, { cwd, env: { ...ENV, ...ONE_THREAD }, preload });
  program.send('SIGUSR2');
  await program.says('stdout', /the disk hangs/);
  program.send('SIGTERM');
  await refusesConnections(t, program.port);
  // Until then, all signals count as one.
  const again = setInterval(() => program.send('SIGINT'), SAME_SIGNAL_MS);
  t.teardown(() => clearInterval(again));
  t.strictSame(await program.ended, KILLED);
  t.equal(program.stderr, '');
});

t.test('signals that come at the same time are one, as a Ctrl-C under npm', async (t) => {
  const { program, client } = await startWithClient(t, secondSignalAfter(2 ** 30));
  program.send('SIGINT');
  await refusesConnections(t, program.port);
  program.send('SIGINT');
  program.send('SIGTERM');
  client.send(message().subarray(-1));
  t.match(await client.answer(), { status: 200, headers: { connection: 'close' } });
  t.strictSame(await program.ended, DONE);
});

t.test('if the disk hangs, the shutdown times out, and SIGKILL ends the program', async (t) => {
  const cwd = t.testdir();
  execFileSync('mkfifo', [join(cwd, 'pipe')]);
  const preload = HANGS + hasten(SHUTDOWN_MS);
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

t.test(
  'if the resolver hangs at the start, the program kills itself once it has to stop',
  async (t) => {
    const cwd = t.testdir();
    execFileSync('mkfifo', [join(cwd, 'pipe')]);
    const preload = RESOLVER_HANGS + NO_EXIT + hasten(SHUTDOWN_MS);
    const env = { ...ENV, PLANT_STORE_HOST: 'plants.example' };
    const program = launch(t, { cwd, env, preload });
    await program.says('stderr', /the resolver hangs/);
    program.send('SIGTERM');
    t.strictSame(await program.ended, KILLED);
    t.equal(program.stderr, `the resolver hangs\n${TIMES_OUT}`);
  },
);

t.test('if only a reload hangs, the program stops cleanly, then kills itself', async (t) => {
  const cwd = t.testdir({ data: { token: `${TOKEN}\n` } });
  const program = await start(t, { cwd, preload: NO_EXIT + hasten(SHUTDOWN_MS) });
  // Opening a FIFO that has no writer hangs.
  rmSync(join(cwd, 'data/token'));
  execFileSync('mkfifo', [join(cwd, 'data/token')]);
  program.send('SIGHUP');
  // The signal has been handled once this plant is answered.
  t.match(await exchange(t, program.port, message()), { status: 200 });
  t.strictSame(await program.stop('SIGTERM'), KILLED);
  t.equal(program.stderr, TIMES_OUT);
});
