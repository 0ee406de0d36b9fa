import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';

import t from 'tap';

import { copyPlant, openPlantLog, type NewPlant, type PlantStore } from '../dist/index.js';
import { storeContract } from '../dist/store-contract.js';
import { memoryStore } from './embedding/examples/store.js';
import { FERN, OPTIONAL } from './helpers/plants.js';

for (const { name, check } of storeContract)
  t.test(`the log: ${name}`, (t) =>
    t.resolves(check(() => openPlantLog(join(t.testdir(), 'plants.jsonl')))),
  );

/** A mistake in a store: the functions that replace functions of a correct store. */
type Mistake = (store: PlantStore) => Partial<PlantStore>;

/** A mistake in `add`. */
const adds =
  (add: (store: PlantStore, plant: NewPlant) => ReturnType<PlantStore['add']>): Mistake =>
  (store) => ({ add: async (plant) => add(store, plant) });

/** A mistake that changes each plant before it is added. */
const changes = (change: (plant: NewPlant) => Partial<NewPlant>): Mistake =>
  adds((store, plant) => store.add({ ...plant, ...change(plant) }));

/** For each optional member, a mistake that loses it. */
const LOSES = Object.fromEntries(
  OPTIONAL.map((member) => [`loses the ${member}`, changes(() => ({ [member]: undefined }))]),
);

/** Decides the outcome before the plant is stored. */
const races: Mistake = (store) => {
  const ids = new Set<bigint>();
  return {
    async add(plant) {
      const { id } = copyPlant(plant);
      const isNew = !ids.has(id);
      await turn();
      ids.add(id);
      await store.add(plant).catch(() => undefined);
      return isNew ? 'created' : 'unchanged';
    },
  };
};

const failsToCloseAgain: Mistake = (store) => {
  let isClosed = false;
  return {
    async close() {
      if (isClosed) throw new Error('the store is closed');
      isClosed = true;
      await store.close();
    },
  };
};

/** For each check, the mistakes that it must find. */
const MISTAKES: Readonly<Record<string, Readonly<Record<string, Mistake>>>> = {
  'a new plant is created, the same again is unchanged, another one with its id a conflict': {
    'stores nothing': adds(async () => 'unchanged'),
    'always says created': adds((store, plant) => store.add(plant).then(() => 'created')),
    'takes a missing tag for an empty one': changes(({ tag = '' }) => ({ tag })),
    ...LOSES,
    'has errors of another class': adds((store, plant) =>
      store.add(plant).catch((error: unknown) => {
        throw Object.assign(new Error(), error);
      }),
    ),
    'keeps the latest plant': adds((store, plant) => store.add(plant).catch(() => 'unchanged')),
    'normalizes names': changes(({ name }) => ({ name: name.normalize() })),
    'stores UTF-8': changes(({ name }) => ({ name: Buffer.from(name).toString() })),
    'ends names at a NUL': changes(({ name }) => ({ name: name.replace(/\0.*/, '') })),
    'cuts names off': changes(({ name }) => ({ name: name.slice(0, 1_048_576) })),
  },
  'ids are distinct over the whole range of an int64': {
    'rounds ids': changes(({ id }) => ({ id: BigInt.asIntN(64, BigInt(Number(id))) })),
    'has ids of 32 bits': changes(({ id }) => ({ id: BigInt.asIntN(32, id) })),
  },
  'what is not a plant is refused with a TypeError or RangeError, even after close': {
    'takes numbers as ids': changes(({ id }) => ({ id: BigInt(`${id}`) })),
    'takes any name': changes(({ name }) => ({ name: JSON.stringify(name) })),
    'reduces ids to 64 bits': changes(({ id }) => ({ id: BigInt.asIntN(64, id) })),
    ...LOSES,
    'does not check plants once it is closed': (store) => {
      let isClosed = false;
      return {
        add: (plant) => store.add(isClosed ? FERN : plant),
        async close() {
          isClosed = true;
          await store.close();
        },
      };
    },
  },
  'a plant that is modified after the call of add is stored as it was': {
    'copies plants late': adds((store, plant) => turn().then(() => store.add(plant))),
  },
  'of plants that are added at the same time, each is stored once': { 'has a race': races },
  'of two plants with one id that are added at the same time, one is a conflict': {
    'has a race': races,
  },
  'close waits for pending plants': {
    'does not wait': adds(async (store, plant) => {
      const outcome = await store.add(plant);
      for (let turns = 0; turns < 2; turns++) await turn();
      return outcome;
    }),
  },
  'a plant that is added after close is refused as unavailable': {
    'stays open': () => ({ close: async () => undefined }),
  },
  'a closed store can be closed again': { 'fails to close again': failsToCloseAgain },
};

t.test('each check of the contract has mistakes that it must find', async (t) => {
  const names = storeContract.map(({ name }) => name);
  t.strictSame(names, Object.keys(MISTAKES));
});

t.test(
  'each check of the contract rejects with the error if the store cannot be opened',
  async (t) => {
    const failure = new Error('it does not open');
    for (const { check } of storeContract)
      await t.rejects(
        check(() => Promise.reject(failure)),
        failure,
      );
  },
);

for (const { name, check } of storeContract)
  for (const [mistake, of] of Object.entries(MISTAKES[name] ?? {}))
    t.test(`a store that ${mistake} fails the check: ${name}`, async (t) => {
      const store = memoryStore();
      const wrong = { ...store, ...of(store) };
      const closed = t.capture(wrong, 'close', wrong.close);
      const isNamed = /^.*: expected .*, not |^Got unwanted rejection/s;
      const failure = { name: 'AssertionError', message: isNamed };
      const checked = check(() => wrong);
      await t.rejects(checked, failure, 'the message names the plant');
      t.ok(closed().length > 0, 'and it is closed');
    });

/** A store whose `add` settles some microtasks later than the `add` of the store that it wraps. */
function delayed(store: PlantStore): PlantStore {
  return {
    close: () => store.close(),
    async add(plant) {
      const outcome = await store.add(plant);
      for (let n = 0; n < 20; n++) await Promise.resolve();
      return outcome;
    },
  };
}

for (const { name, check } of storeContract)
  t.test(`a store that wraps another passes the check: ${name}`, (t) =>
    t.resolves(check(() => delayed(memoryStore()))),
  );
