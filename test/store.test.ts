import { join } from 'node:path';

import t from 'tap';

import { openPlantLog, type PlantStore } from '../dist/index.js';
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
