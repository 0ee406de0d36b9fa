import type { NewPlant, Plant } from './plant.js';

/**
 * A place where the handler stores plants: the log that `openPlantLog` opens, or anything else that
 * keeps these promises.
 *
 * @example A store that keeps plants in memory, and loses them when the process ends:
 * ```ts
 * const plants = new Map<bigint, NewPlant>();
 * const store: PlantStore = {
 *   async add(plant) {
 *     const stored = plants.get(plant.id);
 *     if (!stored) plants.set(plant.id, plant);
 *     else if (stored.name !== plant.name || stored.tag !== plant.tag)
 *       throw new PlantStoreError('conflict', 'the id belongs to a different plant');
 *     return stored ? 'unchanged' : 'created';
 *   },
 *   async close() {},
 * };
 * ```
 */
export interface PlantStore {
  /**
   * Stores a plant. Resolves once the plant is durable: to `created`, or to `unchanged` if the same
   * plant (same id, name and tag) is stored already.
   *
   * @throws {@link PlantStoreError} `conflict` if the id belongs to a different plant; `unavailable` if
   * the plant cannot be stored at the moment, or if it is unknown whether it was. The same plant may be
   * added again at any time.
   */
  add(plant: NewPlant): Promise<'created' | 'unchanged'>;

  /** Waits for the plants that are being stored, then releases the store. Later plants are refused. */
  close(): Promise<void>;
}

/**
 * Why a store fails, and what its caller does about it:
 *
 * - `conflict`: the id belongs to a different plant. Choose another id; trying again does not help.
 * - `unavailable`: the store cannot be used, now or until it is opened again. Try again later: the same
 *   plant is never stored twice.
 * - `damaged`: the store does not hold what was written to it. An operator has to look: nothing was
 *   changed, and the commands `verify` and `repair` show and move what is damaged.
 * - `locked`: another process has the log open. Close it there, or use `plant-store/postgres`, which
 *   several processes can share.
 *
 * @example
 * ```ts
 * const retryable: PlantStoreErrorCode[] = ['unavailable'];
 * ```
 */
export type PlantStoreErrorCode = 'conflict' | 'unavailable' | 'damaged' | 'locked';

/**
 * The error that a store throws. Its message is meant for the operator, and never sent to a client.
 *
 * @example
 * ```ts
 * try {
 *   await store.add({ id: 7n, name: 'Boston fern' });
 * } catch (error) {
 *   if (error instanceof PlantStoreError && error.code === 'conflict') chooseAnotherId();
 *   else throw error;
 * }
 * ```
 */
export class PlantStoreError extends Error {
  override readonly name = 'PlantStoreError';

  constructor(
    readonly code: PlantStoreErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Whether two plants with the same id are the same. */
export function isSame(one: Plant, other: Plant): boolean {
  return one.name === other.name && one.tag === other.tag;
}

/**
 * Copies a plant, so that its caller cannot change it any more.
 *
 * @throws TypeError if it is not a plant, which only a caller without types can bring about.
 */
export function copyPlant(plant: NewPlant): NewPlant {
  const { id, name, tag }: { id: bigint; name: unknown; tag?: unknown } = plant;
  if (typeof name !== 'string' || (tag !== undefined && typeof tag !== 'string'))
    throw new TypeError('name and tag: must be strings');
  return tag === undefined ? { id, name } : { id, name, tag };
}
