/*
 * Sends signals to the program, also while a system call does not return, and as process 1 of a
 * container. The kernel ignores all signals that process 1 does not handle, even its own.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';

import t, { type Test } from 'tap';

import { anyAnswer, connect, exchange, message, untilRefused, TOKEN } from '../helpers/client.js';
import {
  beforeImports,
  changeTimers,
  DONE,
  ENV,
  HASTY,
  INTERRUPTED,
  launch,
  run,
  SERVER,
  start,
  STILL,
  type LaunchOptions,
  type Program,
} from '../helpers/program.js';
import { ONE_THREAD } from '../helpers/strace.js';

/**
 * A preload that lets the process send itself a signal as soon as it handles signals. The rest of
 * the program is imported after the signal has arrived.
 */
const early = (signal: NodeJS.Signals): string =>
  beforeImports(`if (specifier === './program/main.js') {
    process.kill(process.pid, '${signal}');
    const { readFileSync } = process.getBuiltinModule('fs');
    while (/^ShdPnd:.*[1-9a-f]/m.test(readFileSync('/proc/self/status', 'utf8')));
  }`);

/** The process id of the only child of a process. */
const onlyChild = (pid: number): number =>
  Number.parseInt(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8'));

function sendToChild(pid: number, signal: NodeJS.Signals): void {
  process.kill(onlyChild(pid), signal);
}

const AS_PROCESS_1 = ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc'];
const canUnshare = spawnSync('unshare', [...AS_PROCESS_1.slice(1), 'true']).status === 0;
const skipProcess1 = !canUnshare && 'needs unshare, and the right to use it';

t.test('a program that gets SIGHUP during its start serves', async (t) => {
  const program = await start(t, { cwd: t.testdir(), env: ENV, preload: early('SIGHUP') });
  await program.says('stderr', /SIGHUP: the tokens in PLANT_STORE_TOKEN change only/);
  t.strictSame(await program.stop('SIGTERM'), DONE);
});

t.test('as process 1, SIGTERM ends a command', { skip: skipProcess1 }, async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': 'x\n' });
  const preload = early('SIGTERM');
  const { code } = await run(t, { args: ['verify'], cwd, env: ENV, under: AS_PROCESS_1, preload });
  t.equal(code, INTERRUPTED);
});

const hasScript = spawnSync('script', ['-qec', 'true', '/dev/null']).status === 0;
const skip = !hasScript && 'needs script of util-linux';

t.test('with a terminal as its input, SIGHUP stops the program', { skip }, async (t) => {
  const cwd = t.testdir();
  const command = ['script', '-qefc', `exec '${process.execPath}' '${SERVER}'`, '/dev/null'];
  const program = launch(t, { cwd, env: ENV, command });
  await program.says('stdout', /token: from PLANT_STORE_TOKEN \(1 token\)\r\n/);
  sendToChild(program.pid, 'SIGHUP');
  t.strictSame(await program.ended, DONE);
  t.match(program.stdout, /SIGHUP: stopping, because the standard input is a terminal\r\n$/);
});

t.test('closing the terminal stops the program', { skip }, async (t) => {
  const cwd = t.testdir({ output: '' });
  // Only the input is the terminal: the test reads the output after the terminal has gone.
  const program = `exec '${process.execPath}' '${SERVER}' >output 2>&1`;
  const terminal = launch(t, { cwd, env: ENV, command: ['script', '-qefc', program, '/dev/null'] });
  async function says(pattern: RegExp): Promise<string> {
    for (;;) {
      const [, found] = pattern.exec(readFileSync(join(cwd, 'output'), 'utf8')) ?? [];
      if (found !== undefined) return found;
      await setImmediate();
    }
  }
  const port = Number(await says(/^plant-store listening on .*:(\d+)\n[^]*token: /));
  const pid = onlyChild(terminal.pid);
  t.teardown(() => {
    // On Node 20, the program has aborted by now: it cannot restore the mode of a closed terminal.
    if (existsSync(`/proc/${pid}`)) process.kill(pid, 'SIGKILL');
  });
  terminal.send('SIGKILL');
  t.match(await says(/SIGHUP: (.*)\n/), /^stopping, because the standard input is a terminal$/);
  await untilRefused(t, port);
});

t.test('a silent connection to the monitor does not delay a stop', async (t) => {
  const env = { ...ENV, PLANT_STORE_MONITOR_PORT: '0' };
  const program = await start(t, { cwd: t.testdir(), env, preload: HASTY });
  const [, port] = await program.says('stdout', /^monitor: .*:(\d+)\n/m);
  const client = await connect(t, Number(port));
  // Once a later connection is answered, the monitor has accepted the silent one.
  await exchange(t, Number(port), message({ method: 'GET' }), anyAnswer);
  t.strictSame(await program.stop('SIGTERM'), DONE);
  await client.closed;
});

t.test('signals at the same time count as one, such as those of Ctrl-C under npm', async (t) => {
  const program = await start(t, { cwd: t.testdir(), env: ENV, preload: STILL });
  const client = await connect(t, program.port);
  client.send(message(), message().subarray(0, -1));
  t.match(await client.answer(), { status: 200, headers: { connection: 'keep-alive' } });
  program.send('SIGINT');
  await untilRefused(t, program.port);
  program.send('SIGINT');
  program.send('SIGTERM');
  client.send(message().subarray(-1));
  t.match(await client.answer(), { status: 200, headers: { connection: 'close' } });
  t.strictSame(await program.ended, DONE);
});

/** The ending of a process that does not stop in time, and what it writes. */
const KILLED = { code: null, signal: 'SIGKILL' };
const TIMES_OUT = 'plant-store: the shutdown timed out; not all work was completed\n';

/**
 * Starts a program whose only thread for file operations blocks when it reads its tokens: a FIFO
 * that has no writer.
 */
async function startHanging(t: Test, options: LaunchOptions = {}): Promise<Program> {
  const cwd = t.testdir({ tokens: TOKEN });
  const env = { PLANT_STORE_FILE: 'plants.jsonl', PLANT_STORE_TOKEN_FILE: 'tokens', ...ONE_THREAD };
  const program = await start(t, { cwd, env, ...options });
  rmSync(join(cwd, 'tokens'));
  execFileSync('mkfifo', [join(cwd, 'tokens')]);
  if (options.under) sendToChild(program.pid, 'SIGHUP');
  else program.send('SIGHUP');
  // The signal is handled after the requests that have arrived before it, and before all others.
  for (let requests = 0; requests < 2; requests++)
    t.equal((await exchange(t, program.port, message({ method: 'GET' }))).status, 405);
  return program;
}

t.test('a second signal after 0.1 s ends the program, even if the disk hangs', async (t) => {
  const preload = changeTimers('ms > 9_000 ? ms : 2 ** 30');
  const program = await startHanging(t, { preload });
  program.send('SIGTERM');
  await untilRefused(t, program.port);
  // Within 0.1 s, all signals count as one.
  const again = setInterval(() => program.send('SIGINT'), 100);
  t.teardown(() => clearInterval(again));
  t.strictSame(await program.ended, KILLED);
  t.equal(program.stderr, '');
});

t.test('if the disk hangs, SIGKILL ends the program within 10 s', async (t) => {
  const program = await startHanging(t, { preload: HASTY });
  const client = await connect(t, program.port);
  client.send(message());
  // The plant has been read once a later request is answered.
  t.equal((await exchange(t, program.port, message({ method: 'GET' }))).status, 405);
  t.strictSame(await program.stop('SIGTERM'), KILLED);
  t.equal(program.stderr, TIMES_OUT);
  t.match(await client.answer(), { status: 503, headers: { connection: 'close' } });
});

t.test(
  'as process 1, a program whose shutdown times out aborts',
  { skip: skipProcess1 },
  async (t) => {
    const program = await startHanging(t, { preload: HASTY, under: AS_PROCESS_1 });
    sendToChild(program.pid, 'SIGTERM');
    const { code, signal } = await program.ended;
    // abort() ends with an instruction that is not allowed.
    t.ok(Number(code) > 128 || signal, `code ${code}, signal ${signal}`);
    t.ok(program.stderr.startsWith(TIMES_OUT), 'the stack trace of abort() follows');
  },
);
