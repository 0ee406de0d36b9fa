import t from 'tap';

import { copyPlant, type NewPlant } from '../dist/index.js';

t.test('what is not a plant is refused with a message that says what to change', async (t) => {
  const refused = (plant: object): void => void copyPlant(plant as NewPlant);
  const fern = { id: 7n, name: 'Boston fern' };
  t.throws(() => refused({ ...fern, id: 7 }), new TypeError('id: must be a bigint, such as 5n'));
  t.throws(
    () => refused({ ...fern, id: 2n ** 63n }),
    new RangeError('id: must be an integer between -9223372036854775808 and 9223372036854775807'),
  );
  t.throws(() => refused({ id: 7n }), new TypeError('name: must be a string'));
  t.throws(() => refused({ ...fern, tag: null }), new TypeError('tag: must be a string'));
});
