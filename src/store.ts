import type { NewPlant } from './plant.js';

/** Where the handler keeps plants: what `openPlantLog` gives, or whatever keeps these promises. */
export interface PlantStore {
  /**
   * Stores a plant. Resolves once it is durable: to `created`, or to `unchanged` if the same plant
   * (same id, name and tag) had been stored before.
   *
   * @throws {@link PlantStoreError} `conflict` if its id belongs to a different plant;
   * `unavailable` if the plant cannot be stored at the moment and may be sent again.
   */
  add(plant: NewPlant): Promise<'created' | 'unchanged'>;

  /** Waits for what is under way, then lets go of the store. Plants that come later are refused. */
  close(): Promise<void>;
}

/**
 * Why a store fails:
 *
 * - `conflict`: the id belongs to a different plant
 * - `unavailable`: it cannot be used at the moment, or any more
 * - `damaged`: it does not hold what was written to it
 * - `locked`: another process has it open
 */
export type PlantStoreErrorCode = 'conflict' | 'unavailable' | 'damaged' | 'locked';

/** The failure of a store. Its message is for the operator and never sent to a client. */
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
