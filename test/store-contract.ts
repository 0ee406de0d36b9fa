import type { Test } from 'tap';

import type { NewPlant, PlantStore } from '../dist/index.js';
import { exactly } from './exactly.js';

const FERN: NewPlant = { id: 7n, name: 'Boston fern', tag: 'indoor' };

/** What only untyped code can pass to a store, and the errors with which it is refused. */
const NOT_PLANTS: readonly (readonly [
  plant: unknown,
  error: { name: string; message?: RegExp },
])[] = [
  ...[undefined, null, 'fern', {}].map((plant) => [plant, { name: 'TypeError' }] as const),
  ...[undefined, null, 7, '7', ' 7 '].map(
    (id) =>
      [
        { ...FERN, id },
        { name: 'TypeError', message: /^id: / },
      ] as const,
  ),
  ...[2n ** 63n, -(2n ** 63n) - 1n, 2n ** 64n + 7n].map(
    (id) =>
      [
        { ...FERN, id },
        { name: 'RangeError', message: /^id: / },
      ] as const,
  ),
  ...[undefined, null, 7, ['Boston fern']].map(
    (name) =>
      [
        { ...FERN, name },
        { name: 'TypeError', message: /^name: / },
      ] as const,
  ),
  ...[null, 7, ['indoor']].map(
    (tag) =>
      [
        { ...FERN, tag },
        { name: 'TypeError', message: /^tag: / },
      ] as const,
  ),
];

/** Tests the contract of a store. `open` is called once a test, and returns an empty store. */
export function testStoreContract(
  t: Test,
  open: (t: Test) => PlantStore | Promise<PlantStore>,
): void {
  function promise(name: string, isKept: (t: Test, store: PlantStore) => Promise<void>): void {
    t.test(name, async (t) => {
      const store = await open(t);
      await isKept(t, store);
      await store.close();
    });
  }

  promise('a new plant is created', async (t, store) => {
    t.equal(await store.add(FERN), 'created');
  });

  promise('the same plant again is unchanged', async (t, store) => {
    await store.add(FERN);
    t.equal(await store.add({ ...FERN }), 'unchanged');
  });

  promise('a plant may be without a tag', async (t, store) => {
    t.equal(await store.add({ id: 7n, name: 'Boston fern' }), 'created');
    t.equal(await store.add({ id: 7n, name: 'Boston fern' }), 'unchanged');
  });

  promise('the id of another plant is a conflict, and that plant stays', async (t, store) => {
    await store.add(FERN);
    const others: NewPlant[] = [
      { ...FERN, name: 'Ivy' },
      { ...FERN, tag: 'outdoor' },
      { ...FERN, tag: '' },
      { id: FERN.id, name: FERN.name },
    ];
    for (const other of others) await t.rejects(store.add(other), { code: 'conflict' });
    t.equal(await store.add(FERN), 'unchanged');
  });

  promise('ids are told apart over the whole range of an int64', async (t, store) => {
    const ids = [0n, 1n, -1n, 2n ** 53n, 2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n)];
    for (const id of ids) t.equal(await store.add({ id, name: `plant ${id}` }), 'created');
    for (const id of ids) t.equal(await store.add({ id, name: `plant ${id}` }), 'unchanged');
  });

  promise(
    'what is not a plant is refused as such, even once the store is closed',
    async (t, store) => {
      for (const [plant, error] of NOT_PLANTS) await t.rejects(store.add(plant as NewPlant), error);
      t.equal(await store.add(FERN), 'created', 'and nothing is stored');
      await store.close();
      for (const [plant, error] of NOT_PLANTS) await t.rejects(store.add(plant as NewPlant), error);
    },
  );

  promise('a plant that is modified after add is stored as it was', async (t, store) => {
    const plant = { ...FERN };
    const adding = store.add(plant);
    plant.name = 'Ivy';
    t.equal(await adding, 'created');
    t.equal(await store.add(FERN), 'unchanged');
  });

  promise('any string is a name, and differs from every other', async (t, store) => {
    const large = 'x'.repeat(1_048_576);
    const names = [
      '',
      '\0',
      '\ud800',
      '\ud801',
      '\ufffd',
      'é',
      'e\u0301',
      '"\\\n',
      large,
      `${large}x`,
    ];
    for (const [id, name] of names.map((each, n) => [BigInt(n), each] as const)) {
      t.equal(await store.add({ id, name }), 'created');
      t.equal(await store.add({ id, name }), 'unchanged');
      for (const other of names.filter((each) => each !== name))
        await t.rejects(store.add({ id, name: other }), { code: 'conflict' });
    }
  });

  promise('of plants that come at the same time, each is stored once', async (t, store) => {
    const ids = Array.from({ length: 1000 }, (_, index) => BigInt(index % 500));
    const outcomes = await Promise.all(ids.map((id) => store.add({ ...FERN, id })));
    t.equal(outcomes.filter((outcome) => outcome === 'created').length, 500);
  });

  promise('of two plants with one id that come at the same time, one wins', async (t, store) => {
    const outcomes = await Promise.allSettled([store.add(FERN), store.add({ ...FERN, tag: 'x' })]);
    t.match(
      outcomes.toSorted((a, b) => a.status.localeCompare(b.status)),
      exactly({ value: 'created' }, { reason: { code: 'conflict' } }),
    );
  });

  promise('close waits for what is under way', async (t, store) => {
    let stored = false;
    const adding = store.add(FERN).then(() => (stored = true));
    await store.close();
    t.ok(stored);
    await adding;
  });

  promise('plants that come after close are refused', async (t, store) => {
    await store.close();
    await t.rejects(store.add(FERN), { code: 'unavailable' });
  });
}
