import { deepEqual, doesNotReject, equal, ok } from 'node:assert/strict';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { inspect } from 'node:util';

import {
  isRequired,
  MEMBERS,
  plantOf,
  PlantSchema,
  type Member,
  type MemberType,
  type NewPlant,
  type Plant,
} from './plant.js';
import { PlantStoreError, type PlantStore } from './store.js';

/** One promise of a {@link PlantStore}. */
interface StoreCheck {
  /** The promise, in words. */
  readonly name: string;
  /**
   * Opens an empty store, checks the promise, and closes the store, even if it has not kept the promise.
   *
   * @throws AssertionError of `node:assert` if the store does not keep the promise.
   */
  readonly check: (openEmptyStore: () => PlantStore | Promise<PlantStore>) => Promise<void>;
}

/** Of each type of a member: values that differ, the first one for the usual plant, and what is no value of it. */
const VALUES: Readonly<
  Record<MemberType, { readonly valid: readonly unknown[]; readonly invalid: readonly unknown[] }>
> = {
  string: { valid: ['fern', 'ivy', ''], invalid: [null, 7, ['fern']] },
};

const valuesOf = (member: Member) => VALUES[PlantSchema.properties[member].type];

/** The usual plant, but only with these members. */
function fernWith(members: readonly Member[]): NewPlant {
  const values = members.map((member) => [member, valuesOf(member).valid[0]]);
  return plantOf(7n, Object.fromEntries(values) as Plant);
}

const FERN = fernWith(MEMBERS);

/** The usual plant with each set of optional members. */
const SHAPES = MEMBERS.reduce<Member[][]>(
  (sets, member) =>
    sets.flatMap((set) => (isRequired(member) ? [[...set, member]] : [set, [...set, member]])),
  [[]],
).map(fernWith);

/** Those and, for each member, the usual plant with other values. All of them are different plants with one id. */
const VARIANTS: readonly NewPlant[] = [
  ...SHAPES,
  ...MEMBERS.flatMap((member) =>
    valuesOf(member)
      .valid.slice(1)
      .map((value) => ({ ...FERN, [member]: value })),
  ),
];

const CONFLICT = 'PlantStoreError: conflict';
const UNAVAILABLE = 'PlantStoreError: unavailable';

/** What is not a plant, by the class of the error with which a store refuses it. */
const NOT_PLANTS: readonly (readonly [error: ErrorConstructor, plants: readonly unknown[]])[] = [
  [TypeError, [undefined, null, 'fern', {}]],
  [TypeError, [undefined, null, 7, '7', ' 7 '].map((id) => ({ ...FERN, id }))],
  [RangeError, [2n ** 63n, -(2n ** 63n) - 1n, 2n ** 64n + 7n].map((id) => ({ ...FERN, id }))],
  ...MEMBERS.map((member) => {
    const missing = isRequired(member) ? [undefined] : [];
    const values = [...valuesOf(member).invalid, ...missing];
    return [TypeError, values.map((value) => ({ ...FERN, [member]: value }))] as const;
  }),
];

/** What `add` resolves to, or the error that it rejects with; of a {@link PlantStoreError} the code. */
async function outcomeOf(store: PlantStore, plant: NewPlant): Promise<unknown> {
  try {
    return await store.add(plant);
  } catch (error) {
    return error instanceof PlantStoreError ? `PlantStoreError: ${error.code}` : error;
  }
}

/** The message of a check that fails: which plant, what was expected, and what came instead. */
function differs(plant: unknown, expected: string, outcome: unknown): string {
  const [shown, actual] = [plant, outcome].map((value) => inspect(value, { maxStringLength: 40 }));
  return `${shown}: expected ${expected}, not ${actual}`;
}

/** Adds a plant, and checks what comes of it. */
async function expectOutcome(store: PlantStore, plant: NewPlant, expected: string): Promise<void> {
  const outcome = await outcomeOf(store, plant);
  equal(outcome, expected, differs(plant, expected, outcome));
}

async function refusesNotPlants(store: PlantStore): Promise<void> {
  for (const [error, plants] of NOT_PLANTS)
    for (const plant of plants) {
      const outcome = await outcomeOf(store, plant as NewPlant);
      ok(outcome instanceof error, differs(plant, `a ${error.name}`, outcome));
    }
}

async function close(store: PlantStore): Promise<void> {
  await doesNotReject(async () => store.close());
}

const promises: Readonly<Record<string, (store: PlantStore) => Promise<void>>> = {
  async 'a new plant is created, the same again unchanged, with any of the optional members'(
    store,
  ) {
    for (const [n, shape] of SHAPES.entries())
      for (const expected of ['created', 'unchanged'])
        await expectOutcome(store, { ...shape, id: BigInt(n) }, expected);
  },

  async 'the id of a plant that differs in any member is a conflict, and that plant stays'(store) {
    for (const [n, variant] of VARIANTS.entries()) {
      const id = BigInt(n);
      await outcomeOf(store, { ...variant, id });
      for (const other of VARIANTS)
        await expectOutcome(store, { ...other, id }, other === variant ? 'unchanged' : CONFLICT);
    }
  },

  async 'ids are distinct over the whole range of an int64'(store) {
    const ids = [0n, 1n, -1n, 2n ** 53n, 2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n)];
    for (const expected of ['created', 'unchanged'])
      for (const id of ids) await expectOutcome(store, { id, name: `plant ${id}` }, expected);
  },

  async 'what is not a plant is refused with a TypeError or RangeError, even after close'(store) {
    await refusesNotPlants(store);
    await expectOutcome(store, FERN, 'created');
    await close(store);
    await refusesNotPlants(store);
  },

  async 'a plant that is modified after the call of add is stored as it was'(store) {
    const plant = { ...FERN };
    const adding = outcomeOf(store, plant);
    plant.name = 'ivy';
    const outcome = await adding;
    equal(outcome, 'created', differs(FERN, 'created', outcome));
    await expectOutcome(store, FERN, 'unchanged');
  },

  async 'any string can be a name, and different strings conflict'(store) {
    const large = 'x'.repeat(1_048_576);
    const names = [
      ...['', '\0', '\ud800', '\ud801', '\ufffd', 'é', 'e\u0301', '"\\\n'],
      ...[large, `${large}x`],
    ];
    for (const [id, name] of names.map((each, n) => [BigInt(n), each] as const)) {
      await expectOutcome(store, { id, name }, 'created');
      for (const other of names) {
        const expected = other === name ? 'unchanged' : CONFLICT;
        await expectOutcome(store, { id, name: other }, expected);
      }
    }
  },

  async 'of plants that are added at the same time, each is stored once'(store) {
    const ids = Array.from({ length: 1000 }, (_, n) => BigInt(n % 500));
    const outcomes = await Promise.all(ids.map((id) => outcomeOf(store, { ...FERN, id })));
    for (const [n, id] of ids.slice(0, 500).entries()) {
      const both = [outcomes[n], outcomes[n + 500]].toSorted();
      const message = differs({ ...FERN, id }, 'created and unchanged', both);
      deepEqual(both, ['created', 'unchanged'], message);
    }
  },

  async 'of two plants with one id that are added at the same time, one is a conflict'(store) {
    const plants = [FERN, { ...FERN, name: 'ivy' }];
    const outcomes = await Promise.all(plants.map((plant) => outcomeOf(store, plant)));
    const message = differs(plants, `created and ${CONFLICT}`, outcomes);
    deepEqual(outcomes.toSorted(), [CONFLICT, 'created'], message);
  },

  async 'close waits for pending plants'(store) {
    let outcome: unknown = 'pending';
    void outcomeOf(store, FERN).then((settled) => (outcome = settled));
    await close(store);
    // A decorator of a store may pass on the end of an `add` some microtasks later.
    await nextTurn();
    equal(outcome, 'created', differs(FERN, 'created', outcome));
  },

  async 'a plant that is added after close is refused as unavailable'(store) {
    await close(store);
    await expectOutcome(store, FERN, UNAVAILABLE);
  },

  async 'a closed store can be closed again'(store) {
    await close(store);
    await close(store);
  },
};

/**
 * Checks of what a {@link PlantStore} promises, for any test runner: one test for each. `openEmptyStore`
 * returns an empty store, or a promise of one, for each check.
 *
 * - **Ids** and the other members are checked by every store, even once it is closed, with a TypeError or
 *   RangeError. If `add` calls `copyPlant` first, that is done.
 * - **Time:** an `add` may take any time; neither a check nor the handler has a time limit. As long as it
 *   is pending, its client gets no response, the memory of its request stays reserved, even if the
 *   client has closed the connection, and `close` waits. A store that hangs therefore fills
 *   `maxBufferedBytes`: then the handler answers plants with 503. A store needs a time limit of its
 *   own, shorter than that of its clients, and then rejects with `unavailable`; the plant may still be
 *   stored, as a retry is safe. A check of a store that hangs ends only with the time limit of the runner.
 * - **Durability** is not checked: test that a store that is opened again still has its plants.
 *
 * @example With `node:test`:
 * ```ts
 * import { test } from 'node:test';
 * import { storeContract } from 'plant-store/store-contract';
 *
 * for (const { name, check } of storeContract) test(name, () => check(openEmptyStore));
 * ```
 */
export const storeContract: readonly StoreCheck[] = Object.entries(promises).map(
  ([name, isKept]) => ({
    name,
    async check(openEmptyStore) {
      const store = await openEmptyStore();
      try {
        await isKept(store);
      } finally {
        await close(store);
      }
    },
  }),
);
