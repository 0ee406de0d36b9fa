import t from 'tap';

import { checkRange } from '../dist/range.js';

t.test('integers from 1 to the maximum are accepted', async (t) => {
  for (const value of [1, 2, 9, 10]) t.doesNotThrow(() => checkRange('option', value, 10));
});

t.test('other numbers, and what is not a number, are refused', async (t) => {
  const error = new RangeError('option: must be an integer between 1 and 10');
  for (const value of [0, -1, 11, 1.5, NaN, Infinity, '5' as unknown as number])
    t.throws(() => checkRange('option', value, 10), error, String(value));
});
