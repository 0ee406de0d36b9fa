import { deepEqual, doesNotReject } from 'node:assert/strict';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { inspect } from 'node:util';

import { isRequired, MEMBERS, plantOf, type NewPlant, type Plant } from './plant.js';
import { PlantStoreError, type PlantStore } from './store.js';

/** One promise of a {@link PlantStore}. */
interface StoreCheck {
  /** The promise, in words. */
  readonly name: string;
  /**
   * Opens an empty store, checks the promise, and closes the store, even if it has not kept the
   * promise.
   *
   * @throws AssertionError of `node:assert` if the store does not keep the promise; what
   * `openEmptyStore` throws.
   */
  readonly check: (openEmptyStore: () => PlantStore | Promise<PlantStore>) => Promise<void>;
}

/** Values of a member, which a store has to keep apart. */
const VALUES = [
  'fern',
  '',
  '\0',
  // In UTF-8, U+FFFD would replace a lone surrogate.
  '\ud800',
  '\udfff',
  '\ufffd',
  // One character, which Unicode can write in two ways.
  'é',
  'e\u0301',
  '"\\\n',
  'x'.repeat(1_048_576),
  'x'.repeat(1_048_577),
];

/** The usual plant, which has every member. */
const FERN = plantOf(7n, Object.fromEntries(MEMBERS.map((member) => [member, 'fern'])) as Plant);

/** Copies of the usual plant, one with each value of a member. */
function fernsOf(member: keyof NewPlant, values: readonly unknown[]): NewPlant[] {
  return values.map((value) => ({ ...FERN, [member]: value }));
}

/**
 * For each member, plants that differ only in it: one with each value and, if it is optional, one
 * without it.
 */
const DIFFERENT = MEMBERS.map((member) =>
  fernsOf(member, isRequired(member) ? VALUES : [...VALUES, undefined]),
);

/** What is not a plant, by the class of the error with which a store refuses it. */
const NOT_PLANTS = {
  TypeError: [
    undefined,
    null,
    'fern',
    {},
    ...fernsOf('id', [undefined, null, 7, '7', ' 7 ']),
    ...MEMBERS.flatMap((member) => fernsOf(member, [null, 7, ['fern']])),
    ...MEMBERS.filter(isRequired).flatMap((member) => fernsOf(member, [undefined])),
  ],
  RangeError: fernsOf('id', [2n ** 63n, -(2n ** 63n) - 1n, 2n ** 64n + 7n]),
};

const CONFLICT = 'PlantStoreError: conflict';
const UNAVAILABLE = 'PlantStoreError: unavailable';

/**
 * What `add` resolves to, or the class of the error that it rejects with. For a
 * {@link PlantStoreError}, the code follows.
 */
async function outcomeOf(store: PlantStore, plant: unknown): Promise<unknown> {
  try {
    return await store.add(plant as NewPlant);
  } catch (error) {
    if (error instanceof PlantStoreError) return `PlantStoreError: ${error.code}`;
    return [TypeError, RangeError].find((each) => error instanceof each)?.name ?? error;
  }
}

/** Checks that the outcomes of plants are the expected ones, in any order. */
function compare(plants: unknown[], outcomes: unknown[], expected: string[]): void {
  const [shown, actual] = [plants, outcomes].map((each) => inspect(each, { maxStringLength: 40 }));
  const message = `${shown}: expected ${expected.join(' and ')}, not ${actual}`;
  deepEqual(outcomes.toSorted(), expected.toSorted(), message);
}

/** Adds plants at the same time, and checks their outcomes as {@link compare} does. */
async function expect(store: PlantStore, plants: unknown[], ...expected: string[]): Promise<void> {
  const outcomes = await Promise.all(plants.map((plant) => outcomeOf(store, plant)));
  compare(plants, outcomes, expected);
}

async function expectRefusals(store: PlantStore): Promise<void> {
  for (const [error, plants] of Object.entries(NOT_PLANTS))
    for (const plant of plants) await expect(store, [plant], error);
}

async function close(store: PlantStore): Promise<void> {
  await doesNotReject(async () => store.close());
}

/** What a store promises: the words of each promise, and what checks it. */
const PROMISES: Readonly<Record<string, (store: PlantStore) => Promise<void>>> = {
  async 'a new plant is created, the same again is unchanged, another one with its id a conflict'(
    store,
  ) {
    let id = 0n;
    for (const plants of DIFFERENT)
      for (const plant of plants) {
        id++;
        await expect(store, [{ ...plant, id }], 'created');
        for (const other of plants)
          await expect(store, [{ ...other, id }], other === plant ? 'unchanged' : CONFLICT);
      }
  },

  async 'ids are distinct over the whole range of an int64'(store) {
    const ids = [0n, 1n, -1n, 2n ** 53n, 2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n)];
    for (const expected of ['created', 'unchanged'])
      for (const id of ids) await expect(store, [{ id, name: `plant ${id}` }], expected);
  },

  async 'what is not a plant is refused with a TypeError or RangeError, even after close'(store) {
    await expectRefusals(store);
    await expect(store, [FERN], 'created');
    await close(store);
    await expectRefusals(store);
  },

  async 'a plant that is modified after the call of add is stored as it was'(store) {
    const plant = { ...FERN };
    const added = expect(store, [plant], 'created');
    plant.name = 'ivy';
    await added;
    await expect(store, [FERN], 'unchanged');
  },

  async 'of plants that are added at the same time, each is stored once'(store) {
    const plants = Array.from({ length: 500 }, (_, n) => ({ ...FERN, id: BigInt(n) }));
    await Promise.all(plants.map((plant) => expect(store, [plant, plant], 'created', 'unchanged')));
  },

  async 'of two plants with one id that are added at the same time, one is a conflict'(store) {
    await expect(store, [FERN, { ...FERN, name: 'ivy' }], 'created', CONFLICT);
  },

  async 'close waits for pending plants'(store) {
    let outcome: unknown = 'pending';
    void outcomeOf(store, FERN).then((value) => (outcome = value));
    await close(store);
    // A store that wraps another may end `add` some microtasks after `close`, but not later.
    await nextTurn();
    compare([FERN], [outcome], ['created']);
  },

  async 'a plant that is added after close is refused as unavailable'(store) {
    await close(store);
    await expect(store, [FERN], UNAVAILABLE);
  },

  async 'a closed store can be closed again'(store) {
    await close(store);
    await close(store);
  },
};

/**
 * Checks of what a {@link PlantStore} promises, for any test runner: run each check as a test. A
 * check calls `openEmptyStore` once, which returns an empty store or a promise of one.
 *
 * - **Plants** are checked by the store: `add` rejects what is not a plant with a TypeError or
 *   RangeError, even once the store is closed. An `add` that calls `copyPlant` first does that.
 * - **Time:** an `add` may take any time; neither a check nor the handler has a time limit. As long
 *   as it is pending, its client gets no response, the memory of its request stays reserved, even
 *   if the client has closed the connection, and `close` waits. A store that hangs therefore fills
 *   `maxBufferedBytes`: then the handler answers plants with 503. A store needs a time limit of its
 *   own, shorter than that of its clients, and then rejects with `unavailable`; the plant may still
 *   be stored, as a retry is safe. A check of a store that hangs ends only with the time limit of
 *   the runner.
 * - **Durability** is not checked: test that a store still has its plants when it is opened again.
 *
 * @example With `node:test`:
 * ```ts
 * import { test } from 'node:test';
 * import { storeContract } from 'plant-store/store-contract';
 *
 * for (const { name, check } of storeContract) test(name, () => check(openEmptyStore));
 * ```
 */
export const storeContract: readonly StoreCheck[] = Object.entries(PROMISES).map(
  ([name, expectPromise]) => ({
    name,
    async check(openEmptyStore) {
      const store = await openEmptyStore();
      try {
        await expectPromise(store);
      } finally {
        await close(store);
      }
    },
  }),
);
