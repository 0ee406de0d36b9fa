/* The program as process 1, as in a container: the kernel ignores the signals that it does not handle, also from itself. */
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { STOPPING } from '../../dist/program/exit.js';
import { TOKEN } from '../client.js';
import { ONE_THREAD } from '../faults/strace.js';
import {
  hasten,
  LARGE_LOG,
  launch,
  onceReading,
  run,
  start,
  TIMES_OUT,
  toItself,
} from './program.js';

const under = ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc'];
const canUnshare = spawnSync('unshare', [...under.slice(1), 'true']).status === 0;
const skip = !canUnshare && 'needs unshare, and the right to use it';

const env = { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: 'plants.jsonl' };

/** Sends a signal to the program that runs under `unshare`. */
function signal(pid: number, name: NodeJS.Signals): void {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  process.kill(Number.parseInt(children), name);
}

t.test('as process 1, SIGTERM stops a program that serves', { skip }, async (t) => {
  const program = await start(t, { cwd: t.testdir(), env, under });
  signal(program.pid, 'SIGTERM');
  t.strictSame(await program.ended, { code: 0, signal: null });
  t.equal(program.stderr, '');
});

for (const command of ['verify', 'repair'])
  t.test(`as process 1, SIGTERM ends ${command}`, { skip }, async (t) => {
    const cwd = t.testdir({ 'plants.jsonl': LARGE_LOG });
    const preload = onceReading(toItself('SIGTERM'));
    const { code } = await run(t, { args: [command], cwd, env, under, preload });
    t.equal(code, 3);
  });

t.test('as process 1, a program with a call that never returns ends', { skip }, async (t) => {
  const cwd = t.testdir();
  execFileSync('mkfifo', [join(cwd, 'pipe')]);
  // Opening a FIFO blocks until it has a writer.
  const preload = `import { open } from 'node:fs';
    process.once('SIGUSR2', () => {
      open('pipe', 'r', () => undefined);
      console.error('it hangs');
    });
    ${hasten(STOPPING.totalMs)}`;
  const program = launch(t, { cwd, env: { ...env, ...ONE_THREAD }, under, preload });
  await program.says('stdout', /token: /);
  signal(program.pid, 'SIGUSR2');
  await program.says('stderr', /it hangs/);
  signal(program.pid, 'SIGTERM');
  const { code, signal: endedBy } = await program.ended;
  // abort() ends with an instruction that is not allowed.
  t.ok(Number(code) > 128 || endedBy, `code ${code}, signal ${endedBy}`);
  t.ok(program.stderr.startsWith(`it hangs\n${TIMES_OUT}`), 'the stack trace of abort() follows');
});
