import type { NewPlant } from './plant.js';
import { PlantStoreError, type PlantStore } from './store.js';

export interface CopyOptions {
  /** Called after every 10,000 plants with the number of plants so far. */
  readonly onProgress?: (count: number) => void;
  /** Called with the id of each plant of which the store has a different one. */
  readonly onDifferent?: (id: bigint) => void;
}

/** The number of plants that were copied, were there before, or differ from those of the store. */
export type CopyCounts = Record<'created' | 'unchanged' | 'different', number>;

/** What is added at the same time, in plants and in UTF-16 code units. */
const MAX_PENDING = { plants: 4_000, length: 8_388_608 };
const PROGRESS_PLANTS = 10_000;

/**
 * Copies plants into a store. It changes no plant of the store, and can be repeated after an
 * interruption: what was copied before is compared, the rest is copied.
 *
 * @throws the first error of the store other than a conflict.
 */
export async function copyPlants(
  plants: AsyncIterable<NewPlant>,
  store: PlantStore,
  { onProgress, onDifferent }: CopyOptions = {},
): Promise<CopyCounts> {
  const counts: CopyCounts = { created: 0, unchanged: 0, different: 0 };
  const pending = { plants: 0, length: 0 };
  let count = 0;
  let failed: { readonly error: unknown } | undefined;
  let wake: (() => void) | undefined;

  async function copy(plant: NewPlant): Promise<void> {
    const length = plant.name.length + (plant.tag ?? '').length;
    pending.plants++;
    pending.length += length;
    try {
      counts[await add(plant)]++;
      if (++count % PROGRESS_PLANTS === 0) onProgress?.(count);
    } catch (error) {
      failed ??= { error };
    }
    pending.plants--;
    pending.length -= length;
    wake?.();
  }

  async function add(plant: NewPlant): Promise<keyof CopyCounts> {
    try {
      return await store.add(plant);
    } catch (error) {
      if (!(error instanceof PlantStoreError && error.code === 'conflict')) throw error;
      onDifferent?.(plant.id);
      return 'different';
    }
  }

  const nextSettled = (): Promise<void> => new Promise((resolve) => (wake = resolve));
  for await (const plant of plants) {
    void copy(plant);
    while (pending.plants === MAX_PENDING.plants || pending.length > MAX_PENDING.length)
      await nextSettled();
    if (failed) break;
  }
  while (pending.plants > 0) await nextSettled();
  if (failed) throw failed.error;
  return counts;
}
