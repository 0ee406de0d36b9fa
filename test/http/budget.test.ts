import t from 'tap';

import { createBudget } from '../../dist/http/budget.js';

t.test('a reservation grows within the budget, and is released once', async (t) => {
  const budget = createBudget(100);
  const first = budget.reserve(60);
  t.equal(budget.reserve(41), undefined, 'one more than is left');
  const second = budget.reserve(40);
  t.equal(first?.growBy(1), false, 'nothing is left');
  t.ok(first?.growBy(0));
  second?.release();
  t.ok(first?.growBy(50), 'as far as the whole budget');
  t.notOk(budget.reserve(1));
  first?.release();
  first?.release();
  t.ok(budget.reserve(200), 'all of it');
  t.notOk(budget.reserve(1), 'releasing twice counts once');
});

t.test('a budget knows how much is reserved', async (t) => {
  const budget = createBudget(100);
  t.equal(budget.reserved, 0);
  const [one, other] = [budget.reserve(30), budget.reserve(20)];
  one?.growBy(40);
  t.equal(budget.reserved, 90);
  t.notOk(budget.reserve(11));
  t.equal(budget.reserved, 90);
  one?.release();
  t.equal(budget.reserved, 20);
  other?.release();
  t.equal(budget.reserved, 0);
});
