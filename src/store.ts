import { MAX_ID, MIN_ID, PlantSchema, type NewPlant, type Plant } from './plant.js';

/**
 * Where the handler stores plants: the log that `openPlantLog` opens, or any other object that
 * keeps these promises, which `storeContract` of `plant-store/store-contract` tests.
 *
 * @example A store that refuses to grow beyond a number of plants. (The README shows a whole one, in memory.)
 * ```ts
 * const limited = (log: PlantLog, max: number): PlantStore => ({
 *   async add(plant) {
 *     if (log.size >= max) throw new PlantStoreError('unavailable', `there are ${max} plants`);
 *     return log.add(plant);
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
   * @throws TypeError or RangeError if it is not a plant, as {@link copyPlant} does, even if the store is closed.
   */
  add(plant: NewPlant): Promise<'created' | 'unchanged'>;

  /**
   * Waits for the pending plants, then releases the store. Plants that are added later are refused
   * as `unavailable`. Closing a store again does nothing.
   */
  close(): Promise<void>;
}

/**
 * Why a store failed:
 *
 * - `conflict`: the id belongs to a different plant. Choose another id; a retry fails again.
 * - `unavailable`: the plant was not stored, or it is unknown whether it was. Retry later: the same
 *   plant is never stored twice. If the log is poisoned, open it again first.
 * - `damaged`: the log does not hold what was written to it, and was not opened. The command
 *   `plant-store verify` lists the damaged lines. `plant-store repair` writes those that hold a plant again, and
 *   moves the others aside.
 * - `locked`: a process has the log open, and has kept it open for 3 s. Stop it, or use `plant-store/postgres`,
 *   which several processes can share. If it is this process, use the log that it has opened.
 *
 * `add` fails with the first two, opening a log with the last three.
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

const MEMBERS = Object.keys(PlantSchema.properties) as readonly (keyof Plant)[];

/** Whether two plants with the same id have the same name and tag. */
export function isSame(one: Plant, other: Plant): boolean {
  return MEMBERS.every((member) => one[member] === other[member]);
}

/**
 * Checks a plant and copies it, so that the caller cannot modify it while it is pending. The `add` of a
 * store calls this before anything else.
 *
 * @throws TypeError if the id is not a bigint, or the name or the tag not a string.
 * @throws RangeError if the id is not an int64.
 *
 * @example The id is checked even in untyped code:
 * ```ts
 * copyPlant(JSON.parse('{"id":7,"name":"Boston fern"}')); // TypeError: id: must be a bigint, such as 5n
 * ```
 */
export function copyPlant(plant: NewPlant): NewPlant {
  // What untyped code passes may be anything.
  const given = plant as Partial<Record<keyof NewPlant, unknown>> | null | undefined;
  const { id, name, tag } = given ?? {};
  if (typeof id !== 'bigint') throw new TypeError('id: must be a bigint, such as 5n');
  if (id < MIN_ID || id > MAX_ID)
    throw new RangeError(`id: must be an integer between ${MIN_ID} and ${MAX_ID}`);
  if (typeof name !== 'string') throw new TypeError('name: must be a string');
  if (tag === undefined) return { id, name };
  if (typeof tag !== 'string') throw new TypeError('tag: must be a string');
  return { id, name, tag } satisfies Record<keyof NewPlant, unknown>;
}
