import type { NewPlant } from './plant.js';

/**
 * Where the handler stores plants: the log that `openPlantLog` opens, or any other object that
 * keeps these promises, which `storeContract` of `plant-store/store-contract` tests.
 *
 * @example A store that announces each new plant:
 * ```ts
 * const announcing = (log: PlantLog): PlantStore => ({
 *   async add(plant) {
 *     const outcome = await log.add(plant);
 *     if (outcome === 'created') console.log(`new: ${plant.name}`);
 *     return outcome;
 *   },
 *   close: () => log.close(),
 * });
 * ```
 */
export interface PlantStore {
  /**
   * Stores a plant. Resolves once the plant is durable: to `created`, or to `unchanged` if the same
   * plant (same id, name and tag) was stored before.
   *
   * @throws {@link PlantStoreError} `conflict` if the id belongs to a different plant;
   * `unavailable` if the plant cannot be stored at the moment, or if it is unknown whether it was
   * stored. Adding the same plant again is always safe.
   * @throws TypeError or RangeError if `copyPlant` rejects the plant, which is checked even after
   * `close`; RangeError also if the plant is too large for the store.
   */
  add(plant: NewPlant): Promise<'created' | 'unchanged'>;

  /**
   * Waits for the pending plants, then releases the store. Plants that are added later are refused
   * as `unavailable`. Closing a store again does nothing.
   *
   * @throws {@link PlantStoreError} `unavailable` if the store cannot be released. The plants for
   * which `add` has resolved are durable nevertheless.
   */
  close(): Promise<void>;
}

/**
 * Why a store failed:
 *
 * - `conflict`: the id belongs to a different plant. Choose another id; a retry fails again.
 * - `unavailable`: the plant was not stored, or it is unknown whether it was. Retry later: the same
 *   plant is never stored twice. If the log is poisoned (see `PlantLog`), open it again first.
 * - `damaged`: a line of the log was altered or is incomplete. Opening the log fails; reading it
 *   stops at that line. The command `plant-store verify` lists the damaged lines. `plant-store
 *   repair` rewrites those that hold a plant, unless they repeat an id, removes the others, and
 *   keeps the old log.
 * - `locked`: a process has the log open, and has kept it open for 3 s. Stop it, or use
 *   `plant-store/postgres`, which several processes can share. If it is this process, use the log
 *   that it has opened.
 *
 * `add` fails with `conflict` or `unavailable`; opening a log with `unavailable`, `damaged` or
 * `locked`; reading a log with `unavailable` or `damaged`.
 *
 * @example What a caller does about each code:
 * ```ts
 * const actions: Record<PlantStoreErrorCode, () => void> = {
 *   conflict: () => chooseAnotherId(),
 *   unavailable: () => setTimeout(retry, 1_000),
 *   damaged: () => console.error('run plant-store verify, then plant-store repair'),
 *   locked: () => console.error('a process has the log open'),
 * };
 * if (error instanceof PlantStoreError) actions[error.code]();
 * ```
 */
export type PlantStoreErrorCode = 'conflict' | 'unavailable' | 'damaged' | 'locked';

/**
 * The error that a store throws. Its message is for the operator and is never sent to a client;
 * `cause` is the error behind it, if there is one.
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
