import { dirname, resolve as absolute } from 'node:path';

import { copyPlant, membersInJson, type NewPlant, type StoredPlant } from '../plant.js';
import { limitRate, type Report } from '../report.js';
import type { PlantStore } from '../store.js';
import type { ReadingOptions } from './check.js';
import { createCommitter } from './commit.js';
import { fileErrors, storeErrors, toStoreError } from './errors.js';
import * as files from './files.js';
import { createIdIndex } from './ids.js';
import { acquireLock, type Lock } from './lock.js';
import { requireUnmarked } from './mark.js';
import { readPlants } from './read.js';
import { encodeRecord } from './record.js';
import { recover, type OpenLog } from './recover.js';
import { nodeSystem, type System } from './system.js';

/**
 * The options of {@link openPlantLog}.
 */
export interface PlantLogOptions extends ReadingOptions {
  /**
   * Called with a message when the end of the file was mended, when the disk is full and when there is room again, when
   * a write hangs and when it returns, when the log is poisoned, and when it cannot be marked; about 10 times in 10
   * seconds at most. Default: `console.error`.
   */
  readonly report?: Report;
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
   * Aborted once it is unknown what the file holds. Its reason is a {@link PlantStoreError}, whose `cause` says why: a
   * write or sync failed, or the file was modified, replaced or removed, which `close` notices as well. From then on
   * `add` rejects with `unavailable`. To continue, close the log and open it again. A file that was modified is marked
   * by another one beside it (`.modified`): opening it fails until somebody has checked it and removed the mark.
   */
  readonly poisoned: AbortSignal;
  /**
   * Reads the plants that are durable when the iteration begins, in the order in which they were
   * stored. Plants can be added meanwhile, and several iterations can run at once. The memory that
   * each of them takes depends on the longest line only, not on the number of plants. Nothing has to
   * be released if an iteration is abandoned.
   *
   * The iterator rejects with a {@link PlantStoreError}: `unavailable` if the log is closed before all plants
   * have been read, or was poisoned before the iteration, or if the file cannot be read or was truncated;
   * `damaged` if a line was modified.
   *
   * @example Ids are exact, which they would not be after `JSON.parse`:
   * ```ts
   * for await (const { id, name, tag } of log.plants()) console.log(id, name, tag);
   * ```
   */
  plants(): AsyncIterable<StoredPlant>;
  /**
   * Resolves at once if plants can be stored at the moment; writes nothing. Resolves even if the disk is
   * full, because each plant is tried then.
   *
   * @throws {@link PlantStoreError} `unavailable` while a write hangs, and once the log is poisoned or
   * closed.
   *
   * @example Readiness, for a load balancer:
   * ```ts
   * const status = await log.check().then(() => 200, () => 503);
   * ```
   */
  check(): Promise<void>;
}

/**
 * Opens the log of plants at `path`. Creates it (mode 0600) if it is missing, and its folder, whose parent has to
 * exist.
 *
 * Every line is checked. An incomplete last line was never acknowledged: it is copied to a file beside
 * the log, then cut off. Only one process at a time can have a log open. Close a log that
 * is no longer used: until then, it keeps its file open and its lock.
 *
 * @throws {@link PlantStoreError} `locked` if another process, or this one, has the log open and keeps it for 3 s;
 * `damaged` if a line is not what was written (nothing is changed then); `unavailable` if the file cannot be used, or
 * was modified, replaced or removed while it was open, as the mark beside it shows.
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
  let path = absolute(givenPath);
  const report = limitRate(options.report);
  let file: files.OpenFile | undefined;
  let lock: Lock | undefined;
  try {
    // Before a file is created, by the path as it is given: the log may have been removed.
    await requireUnmarked(system, path);
    await files.createFolder(system, dirname(path));
    file = await files.openLogFile(system, path);
    const fileId = await files.statRegularFile(file);
    path = await system.realpath(path);
    await files.syncFolder(system, dirname(path));
    lock = await acquireLock(system, path, fileId.ino);
    // Again, by its real path: the process that had the log open until now may have marked it.
    await requireUnmarked(system, path);
    // A killed process may have left lines that only the page cache holds.
    await file.sync();
    const log = { system, file, path, fileId, index: createIdIndex(), report };
    return createLog(log, await recover(log, options), lock);
  } catch (error) {
    await Promise.allSettled([file?.close(), lock?.release()]);
    throw toStoreError(path, error);
  }
}

function createLog(log: OpenLog, end: number, lock: Lock): PlantLog {
  const { file, path, index } = log;
  const committer = createCommitter(log, end);
  let closed: Promise<void> | undefined;

  // Not an async function, which would create one more promise for each plant.
  function add(given: NewPlant): Promise<'created' | 'unchanged'> {
    try {
      const plant = copyPlant(given);
      if (committer.state.is !== 'open') throw committer.state.error;
      const found = committer.find(plant.id);
      if (found === undefined) return committer.append(plant);
      if (typeof found === 'number')
        return isStoredAt(found, plant).then(requireSame, throwAsStoreError);
      return found.then((stored) => requireSame(membersInJson(stored) === membersInJson(plant)));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  function throwAsStoreError(error: unknown): never {
    throw toStoreError(path, error);
  }

  /**
   * Whether the line at an offset, which the index has for the id of a plant, is its record. Poisons the log if the
   * line has another id. Reads no more than the record takes, so a request reads little more than it has sent.
   */
  async function isStoredAt(offset: number, plant: NewPlant): Promise<boolean> {
    const wanted = Buffer.from(encodeRecord(plant));
    const idEnd = wanted.indexOf(',');
    // Bytes that are not read are zeros, which no line has.
    const found = Buffer.alloc(wanted.length);
    await file.read(found, offset);
    const hasId = found.compare(wanted, 0, idEnd, 0, idEnd) === 0;
    if (!hasId) throw committer.poison(fileErrors.modifiedLine(offset));
    committer.checkFile();
    return found.equals(wanted);
  }

  /** While a write hangs, what is stored can be read. */
  function throwIfUnreadable(): void {
    const { state } = committer;
    if (state.is === 'closed' || state.is === 'poisoned') throw state.error;
  }

  async function* plants(): AsyncGenerator<StoredPlant> {
    throwIfUnreadable();
    const { end } = committer;
    try {
      if ((yield* readPlants(path, file, end)) < end) throw fileErrors.truncated();
    } catch (error) {
      // If the log has been closed meanwhile, that is the reason why it cannot be read.
      throwIfUnreadable();
      throw toStoreError(path, error);
    }
  }

  async function close(): Promise<void> {
    await committer.close();
    try {
      await file.close().catch(throwAsStoreError);
    } finally {
      await committer.marked;
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
    plants,
    check() {
      const { state } = committer;
      return state.is === 'open' ? Promise.resolve() : Promise.reject(state.error);
    },
    close: () => (closed ??= close()),
  };
}

function requireSame(isSamePlant: boolean): 'unchanged' {
  if (isSamePlant) return 'unchanged';
  throw storeErrors.conflict();
}
