/* The program as process 1, as in a container: the kernel ignores the signals that it does not handle, also from itself. */
import { execFileSync, spawnSync } from 'node:child_process';
import { join } from 'node:path';

import t from 'tap';

import { SHUTDOWN_MS } from '../../dist/program/signals.js';
import { ONE_THREAD } from '../faults/strace.js';
import {
  DONE,
  ENV as env,
  hasten,
  INTERRUPTED,
  LARGE_LOG,
  launch,
  onProgress,
  run,
  sendToChild,
  start,
  TIMES_OUT,
  toItself,
} from './program.js';

const under = ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc'];
const canUnshare = spawnSync('unshare', [...under.slice(1), 'true']).status === 0;
const skip = !canUnshare && 'needs unshare, and the right to use it';

t.test('as process 1, SIGTERM stops a program that serves', { skip }, async (t) => {
  const program = await start(t, { cwd: t.testdir(), env, under });
  sendToChild(program.pid, 'SIGTERM');
  t.strictSame(await program.ended, DONE);
  t.equal(program.stderr, '');
});

t.test('as process 1, SIGTERM ends a command', { skip }, async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': LARGE_LOG });
  const preload = onProgress(toItself('SIGTERM'));
  const { code } = await run(t, { args: ['verify'], cwd, env, under, preload });
  t.equal(code, INTERRUPTED);
});

/**
 * Blocks the only thread for file operations when the program opens its log, and reports that: opening a FIFO blocks
 * until it has a writer.
 */
const HANGS_AT_START = `import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
const { open } = fs;
fs.open = (...args) => {
  open('pipe', 'r', () => undefined);
  setImmediate(() => console.error('it hangs'));
  open(...args);
};
syncBuiltinESMExports();`;

t.test('as process 1, a program that hangs while it starts ends', { skip }, async (t) => {
  const cwd = t.testdir();
  execFileSync('mkfifo', [join(cwd, 'pipe')]);
  const preload = HANGS_AT_START + hasten(SHUTDOWN_MS);
  const program = launch(t, { cwd, env: { ...env, ...ONE_THREAD }, under, preload });
  await program.says('stderr', /it hangs/);
  sendToChild(program.pid, 'SIGTERM');
  const { code, signal } = await program.ended;
  // abort() ends with an instruction that is not allowed.
  t.ok(Number(code) > 128 || signal, `code ${code}, signal ${signal}`);
  t.ok(program.stderr.startsWith(`it hangs\n${TIMES_OUT}`), 'the stack trace of abort() follows');
});
