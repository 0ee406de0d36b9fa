import type { NewPlant } from '../plant.js';
import { isSame, PlantStoreError, type PlantStore } from '../store.js';

export interface CopyOptions {
  /** Called after each plant with the counts so far. */
  readonly onProgress?: (counts: CopyCounts) => void;
  /**
   * The plants of the store, in any order. A plant that is found here is not added again, which is
   * faster. All are found if both iterators are in ascending order of ids.
   */
  readonly stored?: AsyncIterator<NewPlant>;
  /** Called with the id of each plant that differs from the one in the store. */
  readonly onDifferent?: (id: bigint) => void;
}

/** The number of plants that were copied, that were there before, and that differ. */
export type CopyCounts = Readonly<Record<Outcome, number>>;

type Outcome = 'created' | 'unchanged' | 'different';

/** The limits of the plants that are being added at a time: their number, and their UTF-16 code units. */
const MAX_PENDING = { plants: 4_000, length: 8_388_608 };

/**
 * Copies plants into a store. It changes no plant of the store and can be repeated after an
 * interruption: plants that were copied before are compared, the others are copied.
 *
 * @throws the first error of the store other than a conflict, or that of `plants`, once no plant is being added.
 */
export async function copyPlants(
  plants: AsyncIterable<NewPlant>,
  store: PlantStore,
  { onProgress, onDifferent, stored }: CopyOptions = {},
): Promise<CopyCounts> {
  const counts = { created: 0, unchanged: 0, different: 0 };
  const pending = { plants: 0, length: 0 };
  let failed: { readonly error: unknown } | undefined;
  let wake: (() => void) | undefined;

  let next = await stored?.next();
  async function isStored(plant: NewPlant): Promise<boolean> {
    while (next && !next.done && next.value.id < plant.id) next = await stored?.next();
    return !!next && !next.done && next.value.id === plant.id && isSame(next.value, plant);
  }

  async function copy(plant: NewPlant): Promise<void> {
    const length = plant.name.length + (plant.tag ?? '').length;
    pending.plants++;
    pending.length += length;
    try {
      counts[await add(plant)]++;
      onProgress?.(counts);
    } catch (error) {
      failed ??= { error };
    }
    pending.plants--;
    pending.length -= length;
    wake?.();
  }

  async function add(plant: NewPlant): Promise<Outcome> {
    try {
      return await store.add(plant);
    } catch (error) {
      if (!(error instanceof PlantStoreError && error.code === 'conflict')) throw error;
      onDifferent?.(plant.id);
      return 'different';
    }
  }

  const nextSettled = (): Promise<void> => new Promise((resolve) => (wake = resolve));
  try {
    for await (const plant of plants) {
      if (await isStored(plant)) {
        counts.unchanged++;
        onProgress?.(counts);
        continue;
      }
      void copy(plant);
      while (pending.plants === MAX_PENDING.plants || pending.length > MAX_PENDING.length)
        await nextSettled();
      if (failed) break;
    }
  } finally {
    while (pending.plants > 0) await nextSettled();
  }
  if (failed) throw failed.error;
  return counts;
}
