import { execFileSync } from 'node:child_process';
import { closeSync, constants, open, openSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import t from 'tap';

import { EXIT, exit, fail, LAST_CALLS_MS } from '../../dist/program/exit.js';
import { hastenTimers } from '../service.js';
import { failsToRun } from '../system/program.js';

t.test('a failure is reported one sentence a line, and returns the exit code', async (t) => {
  const written = t.capture(console, 'error', () => undefined);
  t.equal(fail(EXIT.usage, 'the first fault', 'the second fault'), 2);
  t.equal(fail(EXIT.failed, 'a reason'), 1);
  t.strictSame(
    written().map(({ args }) => args as unknown),
    [
      ['plant-store: the first fault'],
      ['plant-store: the second fault'],
      ['plant-store: a reason'],
    ],
  );
});

t.test('a process whose file operation never returns kills itself, and says why', async (t) => {
  const pipe = join(t.testdir(), 'pipe');
  execFileSync('mkfifo', [pipe]);
  const opened = new Promise((resolve) => open(pipe, 'r', resolve));
  const written = t.capture(console, 'error', () => undefined);
  hastenTimers(t, LAST_CALLS_MS);
  const { setInterval } = globalThis;
  const timers: NodeJS.Timeout[] = [];
  t.intercept(globalThis, 'setInterval', {
    value: (callback: () => void, ms: number) => timers.push(setInterval(callback, ms)),
  });
  const killed = new Promise((resolve) => {
    t.intercept(process, 'kill', { value: (...args: unknown[]) => resolve(args) });
  });
  exit(EXIT.done);
  t.strictSame(await killed, [process.pid, 'SIGKILL']);
  for (const timer of timers) clearInterval(timer);
  closeSync(openSync(pipe, constants.O_WRONLY | constants.O_NONBLOCK));
  await opened;
  t.strictSame(
    written().map(({ args }) => args as unknown),
    [['plant-store: a call to the system does not return; ending with SIGKILL']],
  );
});

t.test('a process that has not ended in time fails', async (t) => {
  const url = JSON.stringify(pathToFileURL('dist/program/exit.js'));
  const source = `import { exitWithin, LAST_CALLS_MS } from ${url}; exitWithin(LAST_CALLS_MS + 1);
    setInterval(() => undefined, 1_000);`;
  const command = [process.execPath, '--input-type=module', '--eval', source];
  const sentence = 'the shutdown timed out; not all work was completed';
  await failsToRun(t, EXIT.failed, [sentence], { command });
});
