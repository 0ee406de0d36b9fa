// store.test.js
import { test } from 'node:test';
import { storeContract } from 'plant-store/store-contract';
import { memoryStore } from './store.js';

for (const { name, check } of storeContract) test(name, () => check(memoryStore));
