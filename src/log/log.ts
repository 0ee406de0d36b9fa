import { dirname, resolve as absolute } from 'node:path';

import { storedPlantIn } from '../plant-json.js';
import {
  copyPlant,
  membersInJson,
  requireInt64,
  type NewPlant,
  type StoredPlant,
} from '../plant.js';
import { guardReport, type Report } from '../report.js';
import type { PlantStore } from '../store.js';
import type { ReadingOptions } from './check.js';
import { createCommitter } from './commit.js';
import { fileErrors, storeErrors, toStoreError } from './errors.js';
import * as files from './files.js';
import { errorOfLine, lineAt } from './lines.js';
import { acquireLock, type Lock } from './lock.js';
import { requireUnmarked } from './mark.js';
import { readPlants } from './read.js';
import { encodeRecord, recordStart } from './encode.js';
import { parseLine } from './record.js';
import { recover, type Recovered } from './recover.js';
import { nodeSystem, type System } from './system.js';

/** The options of {@link openPlantLog}. */
export interface PlantLogOptions extends ReadingOptions {
  /**
   * Called with a message when the end of the file was repaired, when the disk fills up or has room
   * again (10 times in 10 seconds at most), when a write hangs or returns, when the log is
   * poisoned, and when it cannot be marked. Default: `console.error`.
   */
  readonly report?: Report | undefined;
}

/**
 * A plant store in one append-only file of JSON lines.
 *
 * @example Shutting down once it is unknown what the file holds:
 * ```ts
 * log.poisoned.addEventListener('abort', () => {
 *   console.error(log.poisoned.reason);
 *   server.close(() => log.close().finally(() => process.exit(1)));
 * });
 * ```
 */
export interface PlantLog extends PlantStore {
  /** The path of the file, absolute and without symbolic links. */
  readonly path: string;
  /** The number of plants in the log. */
  readonly size: number;
  /** The size of the file in bytes, as far as it is durable. */
  readonly bytes: number;
  /**
   * Aborted once it is unknown what the file holds: a write or sync failed, or another process
   * modified, replaced or removed the file, which `close` notices, too. The reason of the signal is
   * a {@link PlantStoreError} with the failure as its `cause`. From then on, `add` rejects with
   * `unavailable`.
   *
   * To continue, close the log and open it again. After another process has modified the file, a
   * mark is beside it, a file whose name ends with `.modified`. Opening the log then fails until
   * somebody has checked the log and removed the mark.
   */
  readonly poisoned: AbortSignal;
  /**
   * Reads the plants that are durable when the iteration begins, in the order in which they were
   * stored. Plants can be added meanwhile, and several iterations can run at once. The memory that
   * each of them takes depends on the longest line only, not on the number of plants. Nothing has
   * to be released if an iteration is abandoned.
   *
   * The iterator rejects with a {@link PlantStoreError}: `unavailable` if the log is closed before
   * all plants have been read, or was poisoned before the iteration, or if the file cannot be read
   * or was truncated; `damaged` if a line was modified.
   *
   * @example Ids are exact, which they would not be after `JSON.parse`:
   * ```ts
   * for await (const { id, name, tag } of log.plants()) console.log(id, name, tag);
   * ```
   */
  plants(): AsyncIterable<StoredPlant>;
  /**
   * Reads the plant with an id. Resolves to the plant, exactly as it was stored, or to `undefined`
   * if no plant has the id. If the plant is pending, it is returned once it is durable.
   *
   * @throws {@link PlantStoreError} `unavailable` if the plant cannot be read: the store is closed
   * or fails, or the pending plant was not stored; `damaged` if what is stored is no valid plant.
   * @throws TypeError if the id is not a bigint, and RangeError if it is not an int64, even if the
   * store is closed.
   *
   * @example
   * ```ts
   * const plant = await log.get(7n);
   * console.log(plant === undefined ? 'there is no plant 7' : plant.name);
   * ```
   */
  get(id: bigint): Promise<StoredPlant | undefined>;
  /**
   * Resolves at once if plants can be stored at the moment; writes nothing. Resolves even if the
   * disk is full, because each plant is tried then.
   *
   * @throws {@link PlantStoreError} `unavailable` while a write hangs, and once the log is poisoned
   * or closed.
   *
   * @example Readiness, for a load balancer:
   * ```ts
   * const status = await log.check().then(() => 200, () => 503);
   * ```
   */
  check(): Promise<void>;
}

/**
 * Opens the log of plants at `path`. Creates it (mode 0600) if it is missing, and its folder, whose
 * parent has to exist.
 *
 * Every line is checked. An incomplete last line was never acknowledged: it is copied to a file
 * beside the log, then cut off. Only one process at a time can have a log open. Close a log that is
 * no longer used: until then, it keeps its file open and its lock.
 *
 * @throws {@link PlantStoreError} `locked` if another process, or this one, has the log open and
 * keeps it for 3 s; `damaged` if a line is not what was written (nothing is changed then);
 * `unavailable` if the file cannot be used, or was modified, replaced or removed while it was open,
 * as the mark beside it shows.
 * @throws TypeError if `path` is not a string, or `report` not a function.
 *
 * @example
 * ```ts
 * const log = await openPlantLog('data/plants.jsonl');
 * await log.add({ id: 7n, name: 'Boston fern', tag: 'indoor' });
 * await log.close();
 * ```
 */
export function openPlantLog(path: string, options: PlantLogOptions = {}): Promise<PlantLog> {
  return openLog(nodeSystem, path, options);
}

/** As {@link openPlantLog}, on the given system. */
export async function openLog(
  system: System,
  givenPath: string,
  options: PlantLogOptions = {},
): Promise<PlantLog> {
  const given = absolute(givenPath);
  /** The real path, once it is known. */
  let path = given;
  const report = guardReport(options.report);
  let file: files.OpenFile | undefined;
  let lock: Lock | undefined;
  try {
    // Before a file is created: a marked log may have been removed.
    await requireUnmarked(system, given);
    await files.createFolder(system, dirname(given));
    file = await files.openLogFile(system, given);
    const fileId = await files.statRegularFile(file);
    path = await system.realpath(given);
    const paths = [...new Set([path, given])];
    // Makes the directory entry of a new log durable.
    await files.syncFolder(system, dirname(path));
    lock = await acquireLock(system, path, fileId.ino);
    // Again, at each path: the process that had the log open until now may have marked it.
    for (const each of paths) await requireUnmarked(system, each);
    // A killed process may have left lines that only the page cache holds.
    await file.sync();
    const log = { system, file, path, paths, fileId, report };
    return createLog(log, await recover(log, options), lock);
  } catch (error) {
    await Promise.allSettled([file?.close(), lock?.release()]);
    throw toStoreError(path, error);
  }
}

function createLog(log: files.LockedLog, recovered: Recovered, lock: Lock): PlantLog {
  const { file, path } = log;
  const { index } = recovered;
  const committer = createCommitter(log, recovered);
  let closed: Promise<void> | undefined;

  // Not an async function, which would create one more promise for each plant.
  function add(input: NewPlant): Promise<'created' | 'unchanged'> {
    try {
      const plant = copyPlant(input);
      if (committer.state.is !== 'open') throw committer.state.error;
      const pending = committer.pending(plant.id);
      if (pending)
        return pending.then((other) =>
          unchangedOrConflict(membersInJson(other) === membersInJson(plant)),
        );
      const offset = index.get(plant.id);
      if (offset === undefined) return committer.append(plant);
      return compareWithLine(offset, plant).then(unchangedOrConflict, throwAsStoreError);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  function throwAsStoreError(error: unknown): never {
    throw toStoreError(path, error);
  }

  /**
   * Resolves to whether the line at `offset`, where the index has the id of `plant`, is the record
   * of `plant`. Poisons the log and throws if the line has another id. Reads no more bytes than the
   * record has, so a request reads little more than it has sent.
   */
  async function compareWithLine(offset: number, plant: NewPlant): Promise<boolean> {
    const record = Buffer.from(encodeRecord(plant));
    // Bytes that are not read are zeros, which no line has.
    const line = Buffer.alloc(record.length);
    await file.read(line, offset);
    requireLineOf(plant.id, line, offset);
    return line.equals(record);
  }

  /**
   * Poisons the log and throws if `line`, which was read at `offset`, does not begin as a record of
   * `id`, or if the file was replaced or truncated.
   */
  function requireLineOf(id: bigint, line: Buffer, offset: number): void {
    const start = Buffer.from(recordStart(id));
    if (!line.subarray(0, start.length).equals(start))
      throw committer.poison(fileErrors.modifiedLine(offset));
    committer.requireIntact();
  }

  async function get(id: bigint): Promise<StoredPlant | undefined> {
    requireInt64(id);
    throwIfUnreadable();
    const pending = committer.pending(id);
    if (pending) return pending;
    const offset = index.get(id);
    if (offset === undefined) return undefined;
    try {
      const line = await lineAt(file, offset, committer.end);
      requireLineOf(id, line, offset);
      const content = parseLine(line, storedPlantIn);
      if (content.damage === undefined) return content.plant;
      throw errorOfLine(path, { offset, ...content });
    } catch (error) {
      // The log may have been closed or poisoned meanwhile.
      throwIfUnreadable();
      throw toStoreError(path, error);
    }
  }

  /** Throws if the log is closed or poisoned. While a write hangs, plants can be read. */
  function throwIfUnreadable(): void {
    const { state } = committer;
    if (state.is === 'closed' || state.is === 'poisoned') throw state.error;
  }

  async function* plants(): AsyncGenerator<StoredPlant> {
    throwIfUnreadable();
    const { end } = committer;
    try {
      yield* readPlants(path, file, { end, mayBeTorn: false });
    } catch (error) {
      // The log may have been closed or poisoned meanwhile.
      throwIfUnreadable();
      // Poisons the log if the file was replaced or truncated.
      committer.requireIntact();
      throw toStoreError(path, error);
    }
  }

  async function close(): Promise<void> {
    await committer.close();
    try {
      await file.close().catch(throwAsStoreError);
    } finally {
      // Before the lock is released, so that its next holder finds the mark. After the file is
      // closed, because there may have been no descriptor left for the mark.
      await committer.finishMarks();
      await lock.release();
    }
  }

  return {
    path,
    get size() {
      return index.size;
    },
    get bytes() {
      return committer.end;
    },
    poisoned: committer.poisoned,
    add,
    get,
    plants,
    check() {
      const { state } = committer;
      return state.is === 'open' ? Promise.resolve() : Promise.reject(state.error);
    },
    close: () => (closed ??= close()),
  };
}

function unchangedOrConflict(isSamePlant: boolean): 'unchanged' {
  if (isSamePlant) return 'unchanged';
  throw storeErrors.conflict();
}
