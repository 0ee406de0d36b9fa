import t from 'tap';

import { limitRate, reportToConsole } from '../dist/report.js';

t.test('a flood of reports is cut to so many in a period', async (t) => {
  const heard: string[] = [];
  const report = limitRate((message) => heard.push(message), { count: 2, periodMs: Infinity });
  for (let i = 1; i <= 1000; i++) report(`report ${i}`);
  t.same(heard, ['report 1', 'report 2']);
});

t.test('what was left out is counted in the next period', async (t) => {
  const heard: string[] = [];
  const report = limitRate((message) => heard.push(message), { count: 0, periodMs: 0 });
  report('one');
  report('two');
  report('three');
  t.same(heard, ['dropped 1 more report', 'dropped 1 more report']);
});

t.test(
  'a report carries its cause, and the console shows it only where there is one',
  async (t) => {
    const shown = t.capture(console, 'error', () => undefined);
    const cause = new Error('the cause');
    limitRate(reportToConsole)('it failed', cause);
    reportToConsole('it works');
    t.same(
      shown().map(({ args }) => args as unknown),
      [['plant-store: it failed', cause], ['plant-store: it works']],
    );
  },
);

t.test('a report that cannot be given breaks nothing', async (t) => {
  const shown = t.capture(console, 'error', () => undefined);
  const fault = new Error('no');
  limitRate(() => {
    throw fault;
  })('it failed');
  t.same(
    shown().map(({ args }) => args as unknown),
    [['plant-store: it failed', fault]],
  );
});
