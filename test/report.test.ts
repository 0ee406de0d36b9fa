import { readFile } from 'node:fs/promises';
import { constants } from 'node:os';
import { setImmediate } from 'node:timers/promises';

import t from 'tap';

import { guardReport, limitRate, REPORT_RATE } from '../dist/report.js';
import { codeOf, reasonOf } from '../dist/system-error.js';

t.test('a report is written to the console if the report function throws or rejects', async (t) => {
  const shown = t.capture(console, 'error', () => undefined);
  const fault = new Error('no');
  const rejects: () => unknown = () => Promise.reject(fault);
  const throws = (): never => {
    throw fault;
  };
  for (const guard of [guardReport, limitRate]) {
    guard(throws)('it failed');
    guard(rejects)('it failed again');
    await setImmediate();
    t.strictSame(shown.args().flat(), ['plant-store: it failed', 'plant-store: it failed again']);
    t.throws(() => guard('console' as never), TypeError);
  }
});

t.test('reports beyond the rate limit are dropped and counted, per report function', async (t) => {
  let now = 0;
  t.intercept(performance, 'now', { value: () => now });
  const messages: string[] = [];
  const collect = (message: string): void => void messages.push(message);
  const { count, periodMs } = REPORT_RATE;
  const report = limitRate(collect);
  for (let n = 0; n < count + 2; n++) report('a row is refused');
  limitRate(collect)('the server is away');
  guardReport(collect)('the log is poisoned');
  now += periodMs - 1;
  report('a row is refused');
  now += 1;
  report('a row is refused');
  t.strictSame(messages.splice(count), [
    'the server is away',
    'the log is poisoned',
    'dropped 3 more reports',
    'a row is refused',
  ]);
});

t.test('a cause that cannot be printed is left out of a report', async (t) => {
  const cause = new Error('x');
  Object.defineProperty(cause, 'stack', {
    get: () => {
      throw cause;
    },
  });
  const shown = t.capture(console, 'error', (_message: string, ...causes: Error[]) => {
    for (const { stack } of causes) t.fail(`printed ${stack}`);
  });
  guardReport()('it failed', cause);
  await setImmediate();
  t.strictSame(shown().at(-1)?.args as unknown, ['plant-store: it failed']);
});

t.test('a report shows the reason of a system error in words, or else the message', async (t) => {
  const missing: unknown = await readFile('no/such/file').catch((error: unknown) => error);
  const others = [new Error('text'), undefined, null, 'text'];
  t.equal(reasonOf(missing), 'no such file or directory (ENOENT)');
  t.strictSame(others.map(reasonOf), ['text', 'undefined', 'null', 'text']);
  const unnamed = { errno: -constants.errno.EDQUOT, message: 'Unknown system error -122' };
  t.equal(reasonOf(unnamed), 'EDQUOT');
  const none = others.map(() => undefined);
  t.strictSame([missing, ...others].map(codeOf), ['ENOENT', ...none]);
});
