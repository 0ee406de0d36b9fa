import t from 'tap';

import { copyPlant, type NewPlant } from '../dist/plant.js';
import { OPTIONAL } from './plants.js';

t.test('copyPlant refuses what is not a plant, and says what to change', async (t) => {
  const refused = (plant: object) => () => copyPlant(plant as NewPlant);
  const fern = { id: 7n, name: 'Boston fern' };
  t.throws(refused({ ...fern, id: 7 }), new TypeError('id: must be a bigint, such as 5n'));
  const range = 'between -9223372036854775808 and 9223372036854775807';
  t.throws(refused({ ...fern, id: 2n ** 63n }), new RangeError(`id: must be an integer ${range}`));
  t.throws(refused({ id: 7n }), new TypeError('name: must be a string'));
  for (const member of OPTIONAL) {
    const fault = `${member}: must be a string`;
    t.throws(refused({ ...fern, [member]: 7 }), new TypeError(fault));
    t.throws(refused({ ...fern, [member]: null }), new TypeError(`${fault}, or be left out`));
  }
});
