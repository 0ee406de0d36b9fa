import t from 'tap';

import { createBudget } from '../../dist/http/budget.js';

t.test('a reservation grows within the budget, and is released once', async (t) => {
  const budget = createBudget(100);
  const first = budget.reserve(60);
  t.equal(budget.reserve(41), undefined, 'one more than is left');
  const second = budget.reserve(40);
  t.equal(first?.growBy(1), false, 'nothing is left');
  t.ok(first?.growBy(0));
  t.equal(budget.reserved, 100, 'what was refused is not reserved');
  second?.release();
  t.equal(budget.reserved, 60);
  t.ok(first?.growBy(50), 'as far as the whole budget');
  t.notOk(budget.reserve(1));
  first?.release();
  first?.release();
  t.equal(budget.reserved, 0, 'releasing twice counts once');
  t.ok(budget.reserve(200), 'all of it');
  t.notOk(budget.reserve(1));
});
