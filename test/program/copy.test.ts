import t from 'tap';

import { copyPlants, type CopyCounts } from '../../dist/program/copy.js';
import { PlantStoreError, type NewPlant } from '../../dist/index.js';
import { bytesOf, MAX_WAITING_BYTES } from '../../dist/store.js';
import { createGate, isPending } from '../log/support.js';
import { openLog, storeOf } from '../stores.js';

async function* plantsFrom(count: number): AsyncGenerator<NewPlant> {
  for (let n = 0; n < count; n++) yield { id: BigInt(n), name: `plant ${n}`, tag: '\ud800' };
}

/** A store that takes a turn of the event loop for each plant, and may fail to store one of them. */
function slowStore(failingId?: bigint, failure?: Error) {
  const counts = { added: 0, settled: 0 };
  const store = storeOf(async ({ id }) => {
    counts.added++;
    await new Promise(setImmediate);
    counts.settled++;
    if (failure && id === failingId) throw failure;
    return 'created';
  });
  return { store, added: () => counts.added, settled: () => counts.settled };
}

t.test('a copy stores each plant once, and compares the plants when it is repeated', async (t) => {
  const log = await openLog(t);
  await log.add({ id: 5n, name: 'another' });
  const different: bigint[] = [];
  let progress: CopyCounts | undefined;
  const result = await copyPlants(plantsFrom(20_000), log, {
    onProgress: (counts) => (progress = { ...counts }),
    onDifferent: ({ id }) => different.push(id),
  });
  t.strictSame(result, { created: 19_999, unchanged: 0, different: 1 });
  t.strictSame(progress, result);
  t.strictSame(different, [5n]);
  const repeated = await copyPlants(plantsFrom(1_000), log);
  t.strictSame(repeated, { created: 0, unchanged: 999, different: 1 });
});

t.test('a copy does not add plants again that the stored ones contain', async (t) => {
  const added: bigint[] = [];
  const store = storeOf(async ({ id }) => {
    added.push(id);
    return 'created';
  });
  async function* known(): AsyncGenerator<NewPlant> {
    for await (const plant of plantsFrom(9)) {
      if (plant.id === 3n) yield { id: 3n, name: 'another' };
      else if (plant.id !== 5n) yield plant;
      if (plant.id === 6n) yield { id: 0n, name: 'plant 0' };
    }
  }
  const stored: AsyncIterator<NewPlant> = known();
  const progress: number[] = [];
  const onProgress = ({ created, unchanged }: CopyCounts): void =>
    void progress.push(created + unchanged);
  const result = await copyPlants(plantsFrom(10), store, { stored, onProgress });
  t.strictSame(progress, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 'each plant is progress');
  t.strictSame(added, [3n, 5n, 9n], 'but those that differ or are missing are');
  t.strictSame(result, { created: 3, unchanged: 7, different: 0 });
});

t.test('a repeated copy adds no plant again, in whatever order the plants are', async (t) => {
  async function* shuffled(): AsyncGenerator<NewPlant> {
    for (const id of [5n, -3n, 8n, 0n]) yield { id, name: 'fern' };
  }
  const store = storeOf(() => Promise.reject(new Error('added again')));
  const stored: AsyncIterator<NewPlant> = shuffled();
  t.match(await copyPlants(shuffled(), store, { stored }), { unchanged: 4 });
});

t.test('a copy waits until the plants that differ have been reported', async (t) => {
  const gate = createGate();
  let reported = 0;
  const store = storeOf(async () => {
    throw new PlantStoreError('conflict', 'the id belongs to a different plant');
  });
  const onDifferent = (): Promise<void> => {
    reported++;
    return gate.pass();
  };
  const copying = copyPlants(plantsFrom(10_000), store, { onDifferent });
  t.ok(await isPending(copying));
  t.equal(reported, 4_000, 'as many as can be pending');
  gate.open();
  t.match(await copying, { different: 10_000 });
  t.equal(reported, 10_000);
});

t.test('a copy stops at the first error, and waits for pending plants', async (t) => {
  const failure = new PlantStoreError('unavailable', 'full');
  const { store, added, settled } = slowStore(10n, failure);
  await t.rejects(copyPlants(plantsFrom(100_000), store), failure);
  t.ok(added() < 10_000);
  t.equal(settled(), added());
});

t.test('if the plants cannot be read on, those before are stored first', async (t) => {
  const { store, settled } = slowStore();
  const failure = new Error('damaged');
  async function* damaged(): AsyncGenerator<NewPlant> {
    yield* plantsFrom(3);
    throw failure;
  }
  await t.rejects(copyPlants(damaged(), store), failure);
  t.equal(settled(), 3);
});

t.test('a copy keeps as few plants pending as any store takes', async (t) => {
  const pending = { plants: 0, bytes: 0 };
  const most = { plants: 0, bytes: 0 };
  const store = storeOf(async (plant) => {
    const bytes = bytesOf(plant);
    // The rule of the PostgreSQL store.
    if (pending.bytes > 0 && pending.bytes + bytes > MAX_WAITING_BYTES)
      throw new PlantStoreError('unavailable', 'too many plants are waiting');
    pending.plants++;
    pending.bytes += bytes;
    most.plants = Math.max(most.plants, pending.plants);
    most.bytes = Math.max(most.bytes, pending.bytes);
    await new Promise(setImmediate);
    pending.plants--;
    pending.bytes -= bytes;
    return 'created';
  });
  async function* plants(): AsyncGenerator<NewPlant> {
    yield* plantsFrom(5_000);
    for (let id = 5_000n; id < 5_050n; id++) yield { id, name: 'x'.repeat(1_048_576) };
  }
  t.match(await copyPlants(plants(), store), { created: 5_050 });
  t.equal(most.plants, 4_000);
  t.ok(most.bytes <= MAX_WAITING_BYTES / 8, `${most.bytes} bytes`);

  async function* withLarge(): AsyncGenerator<NewPlant> {
    for (const name of ['small', 'x'.repeat(MAX_WAITING_BYTES), 'small'])
      for (let n = 0; n < 100; n++) yield { id: 0n, name };
  }
  t.match(await copyPlants(withLarge(), store), { created: 300 });
});
