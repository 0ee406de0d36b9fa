/* The start of the program, and signals that arrive during it. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

import t from 'tap';

import {
  beforeImports,
  DONE,
  ENV,
  launch,
  sendToChild,
  SERVER,
  serving,
  start,
  toItself,
} from './program.js';

/** A preload that sends the process a signal as soon as it handles signals, before the rest of it is imported. */
const early = (signal: NodeJS.Signals): string =>
  beforeImports(`if (specifier === './program/main.js') ${toItself(signal)}`);

t.test('the program is an executable file, as npx runs it in a clone', async (t) => {
  const { stdout } = spawnSync(SERVER, ['--version'], { encoding: 'utf8' });
  t.match(stdout, /^\d+\.\d+\.\d+\n$/);
});

t.test('a program that gets SIGHUP before it is imported serves', async (t) => {
  const program = await start(t, { cwd: t.testdir(), env: ENV, preload: early('SIGHUP') });
  await program.says('stderr', /SIGHUP: the tokens in PLANT_STORE_TOKEN change only/);
  t.strictSame(await program.stop('SIGTERM'), DONE);
});

t.test('a program that gets SIGTERM before it is imported ends well', async (t) => {
  const program = launch(t, { cwd: t.testdir(), env: ENV, preload: early('SIGTERM') });
  t.strictSame(await program.ended, DONE);
  t.equal(program.stdout, '');
});

/** Whether a process handles SIGHUP, which is signal 1. */
function handlesHangup(pid: number): boolean {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const [, caught = '0'] = /^SigCgt:\s*([0-9a-f]+)$/m.exec(status) ?? [];
  return (BigInt(`0x${caught}`) & 1n) === 1n;
}

t.test('from the first signal that it handles on, SIGHUP never ends the program', async (t) => {
  const program = launch(t, { cwd: t.testdir(), env: ENV });
  while (!handlesHangup(program.pid)) await new Promise(setImmediate);
  const hangups = setInterval(() => program.send('SIGHUP'), 1);
  t.teardown(() => clearInterval(hangups));
  await serving(program, 'token');
  clearInterval(hangups);
  program.send('SIGTERM');
  t.strictSame(await program.ended, DONE);
});

const isThere = spawnSync('script', ['-qec', 'true', '/dev/null']).status === 0;
const skip = !isThere && 'needs script of util-linux';

t.test('with a terminal as its input, SIGHUP stops the program', { skip }, async (t) => {
  const cwd = t.testdir();
  const command = ['script', '-qefc', `exec '${process.execPath}' '${SERVER}'`, '/dev/null'];
  const program = launch(t, { cwd, env: ENV, command });
  await program.says('stdout', /token: from PLANT_STORE_TOKEN \(1 token\)\r\n/);
  sendToChild(program.pid, 'SIGHUP');
  t.strictSame(await program.ended, DONE);
  t.match(program.stdout, /SIGHUP: stopping, because the standard input is a terminal\r\n$/);
});
