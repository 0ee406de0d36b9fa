import t from 'tap';

import { createBudget } from '../../dist/http/budget.js';

t.test('a reservation grows within the budget, and can be given back in parts', async (t) => {
  const budget = createBudget(100);
  const first = budget.reserve(60);
  t.equal(budget.reserve(41), undefined, 'one more than is left');
  const second = budget.reserve(40);
  t.equal(first?.growBy(1), false, 'nothing is left');
  t.ok(first?.growBy(0));
  t.equal(budget.reserved, 100, 'what was refused is not reserved');
  second?.shrinkTo(10);
  t.equal(budget.reserved, 70);
  second?.shrinkTo(0);
  t.ok(first?.growBy(50), 'as far as the whole budget');
  t.notOk(budget.reserve(1));
  first?.shrinkTo(0);
  first?.shrinkTo(0);
  t.equal(budget.reserved, 0, 'releasing twice counts once');
  t.ok(budget.reserve(200), 'all of it');
  t.notOk(budget.reserve(1));
});
