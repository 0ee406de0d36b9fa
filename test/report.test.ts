import { readFile } from 'node:fs/promises';
import { constants } from 'node:os';
import { setImmediate } from 'node:timers/promises';

import t from 'tap';

import { limitRate } from '../dist/report.js';
import { codeOf, reasonOf } from '../dist/system-error.js';

t.test('a report whose function throws or rejects is written to the console', async (t) => {
  const shown = t.capture(console, 'error', () => undefined);
  const fault = new Error('no');
  const rejects: () => unknown = () => Promise.reject(fault);
  const throws = (): never => {
    throw fault;
  };
  limitRate(throws)('it failed');
  limitRate(rejects)('it failed again');
  const report = limitRate(throws, { count: 0, periodMs: 0 });
  for (const message of ['one', 'two']) report(message);
  await setImmediate();
  t.strictSame(shown.args().flat(), [
    'plant-store: it failed',
    'plant-store: dropped 1 more report',
    'plant-store: it failed again',
  ]);
});

t.test('a cause that cannot be printed is left out', async (t) => {
  const cause = new Error('x');
  Object.defineProperty(cause, 'stack', {
    get: () => {
      throw cause;
    },
  });
  const shown = t.capture(console, 'error', (_message: string, ...causes: Error[]) => {
    for (const { stack } of causes) t.fail(`printed ${stack}`);
  });
  limitRate()('it failed', cause);
  await setImmediate();
  t.strictSame(shown().at(-1)?.args as unknown, ['plant-store: it failed']);
});

t.test('a report names an error by its reason in words, or its message', async (t) => {
  const missing: unknown = await readFile('no/such/file').catch((error: unknown) => error);
  const others = [new Error('text'), undefined, null, 'text'];
  t.equal(reasonOf(missing), 'no such file or directory (ENOENT)');
  t.strictSame(others.map(reasonOf), ['text', 'undefined', 'null', 'text']);
  const unnamed = { errno: -constants.errno.EDQUOT, message: 'Unknown system error -122' };
  t.equal(reasonOf(unnamed), 'EDQUOT');
  const none = others.map(() => undefined);
  t.strictSame([missing, ...others].map(codeOf), ['ENOENT', ...none]);
});
