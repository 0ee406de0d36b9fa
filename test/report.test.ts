import t from 'tap';

import { createBudget } from '../dist/http/budget.js';
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
  t.same(heard, ['1 more reports were left out', '1 more reports were left out']);
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

t.test(
  'a budget that is used up is reported once, and again when half of it is free',
  async (t) => {
    const heard: string[] = [];
    const budget = createBudget(100, (message) => heard.push(message));
    const [large, small] = [budget.open(), budget.open()];
    t.ok(large.hold(100));
    t.ok(large.hold(99), 'it holds as much already');
    t.notOk(small.hold(1));
    t.notOk(large.hold(101));
    t.same(heard, ['overloaded: requests hold 100 bytes, more are refused']);
    large.keep(51);
    t.equal(heard.length, 1);
    t.ok(small.hold(49));
    large.keep(52);
    t.notOk(small.hold(50), 'what is kept never grows');
    large.keep(1);
    t.equal(heard[1], 'no longer overloaded');
    t.notOk(small.hold(100));
    t.equal(heard.length, 3);
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
