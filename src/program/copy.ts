import type { NewPlant } from '../plant.js';
import { bytesOf, isSame, MAX_WAITING_BYTES, PlantStoreError, type PlantStore } from '../store.js';

export interface CopyOptions<P extends NewPlant> {
  /** Called after each plant with the counts so far. */
  readonly onProgress?: (counts: CopyCounts) => void;
  /**
   * The plants of the store, in any order. A plant that is found here is not added again, which is
   * faster. All are found if both iterators yield the same plants in the same order, or ascending ids.
   */
  readonly stored?: AsyncIterator<NewPlant>;
  /**
   * Called with each plant that differs from the one in the store. If it returns a promise, the plant is
   * pending until that is resolved.
   */
  readonly onDifferent?: (plant: P) => unknown;
}

/** The number of plants that were copied, that were there before, and that differ. */
export type CopyCounts = Readonly<Record<Outcome, number>>;

type Outcome = 'created' | 'unchanged' | 'different';

/**
 * The limits of the plants that are being added at a time: two batches of the PostgreSQL store, so that none
 * waits for long. A plant that exceeds them is added alone.
 */
const MAX_PENDING = { plants: 4_000, bytes: MAX_WAITING_BYTES / 8 };

/**
 * Copies plants into a store. It changes no plant of the store and can be repeated after an
 * interruption: plants that were copied before are compared, the others are copied.
 *
 * @throws the first error of the store other than a conflict, or that of `plants`, once no plant is being added.
 */
export async function copyPlants<P extends NewPlant>(
  plants: AsyncIterable<P>,
  store: PlantStore,
  { onProgress, onDifferent, stored }: CopyOptions<P> = {},
): Promise<CopyCounts> {
  const counts = { created: 0, unchanged: 0, different: 0 };
  const pending = { plants: 0, bytes: 0 };
  let failed: { readonly error: unknown } | undefined;
  let wake: (() => void) | undefined;

  let next = await stored?.next();
  async function isStored(plant: NewPlant): Promise<boolean> {
    while (next && !next.done && next.value.id < plant.id) next = await stored?.next();
    if (!next || next.done || next.value.id !== plant.id || !isSame(next.value, plant))
      return false;
    next = await stored?.next();
    return true;
  }

  function hasRoom(bytes: number): boolean {
    if (pending.plants === 0) return true;
    return pending.plants < MAX_PENDING.plants && pending.bytes + bytes <= MAX_PENDING.bytes;
  }

  async function copy(plant: P, bytes: number): Promise<void> {
    pending.plants++;
    pending.bytes += bytes;
    try {
      counts[await add(plant)]++;
      onProgress?.(counts);
    } catch (error) {
      failed ??= { error };
    }
    pending.plants--;
    pending.bytes -= bytes;
    wake?.();
  }

  async function add(plant: P): Promise<Outcome> {
    try {
      return await store.add(plant);
    } catch (error) {
      if (!(error instanceof PlantStoreError && error.code === 'conflict')) throw error;
      await onDifferent?.(plant);
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
      const bytes = bytesOf(plant);
      // Before the plant is added, not after: a store may refuse a large plant while others wait.
      while (!hasRoom(bytes)) await nextSettled();
      if (failed) break;
      void copy(plant, bytes);
    }
  } finally {
    while (pending.plants > 0) await nextSettled();
  }
  if (failed) throw failed.error;
  return counts;
}
