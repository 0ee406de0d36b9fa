import { join } from 'node:path';

import t from 'tap';

import { copyPlant, openPlantLog, type NewPlant, type PlantStore } from '../dist/index.js';
import { runExample } from './example.js';
import { block } from './readme.js';
import { testStoreContract } from './store-contract.js';

t.test('the log fulfils the contract of a store', async (t) => {
  testStoreContract(t, (t) => openPlantLog(join(t.testdir(), 'plants.jsonl')));
});

t.test("the README's store fulfils the contract of a store", async (t) => {
  const example = await runExample(t, block('A store of your own', 'ts'));
  testStoreContract(t, example.memoryStore as () => PlantStore);
});

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
