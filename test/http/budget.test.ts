import t from 'tap';

import { createBudget } from '../../dist/http/budget.js';

t.test('a reservation grows and shrinks within the budget', async (t) => {
  const budget = createBudget(100);
  const first = budget.reserve(60);
  t.equal(budget.reserve(41), undefined, 'one more than is left');
  const second = budget.reserve(40);
  t.equal(first?.growTo(61), false, 'nothing is left');
  t.ok(first?.growTo(59), 'already as large');
  second?.shrinkTo(41);
  t.equal(first?.growTo(61), false, 'shrinking never grows');
  second?.shrinkTo(10);
  t.ok(first?.growTo(90));
  t.notOk(budget.reserve(1));
  first?.shrinkTo(0);
  first?.shrinkTo(0);
  t.equal(budget.reserve(91), undefined, 'releasing twice counts once');
  t.ok(budget.reserve(90));
});

t.test('exhaustion is reported once, and again when half of the budget is free', async (t) => {
  const changes: unknown[] = [];
  const budget = createBudget(100, (...change) => changes.push(change));
  const large = budget.reserve(100);
  t.strictSame(changes, []);
  t.notOk(budget.reserve(1));
  t.notOk(budget.reserve(1));
  t.strictSame(changes, [[true, 100]]);
  large?.shrinkTo(51);
  t.equal(changes.length, 1);
  large?.shrinkTo(50);
  t.strictSame(changes[1], [false, 50]);
  t.notOk(budget.reserve(100));
  t.equal(changes.length, 3);
});

t.test('exhaustion by growing is reported, too', async (t) => {
  const changes: unknown[] = [];
  const budget = createBudget(100, (...change) => changes.push(change));
  const [large, small] = [budget.reserve(90), budget.reserve(10)];
  t.equal(small?.growTo(11), false);
  t.strictSame(changes, [[true, 100]]);
  small?.shrinkTo(0);
  t.equal(changes.length, 1);
  large?.shrinkTo(0);
  t.strictSame(changes[1], [false, 0]);
});
