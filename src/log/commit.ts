import { AsyncResource } from 'node:async_hooks';
import { constants } from 'node:os';
// Not the global, which fake timers of test runners replace.
import { setImmediate } from 'node:timers';

import { publishCommit } from '../channels.js';
import type { NewPlant } from '../plant.js';
import { limitRate } from '../report.js';
import type { PlantStoreError } from '../store.js';
import { codeOf, reasonOf } from '../system-error.js';
import { createRecordBuffer, type RecordBuffer } from './encode.js';
import { fileErrors, MODIFIED, storeErrors, toStoreError } from './errors.js';
import * as files from './files.js';
import { leaveMarks } from './mark.js';
import { MAX_RECORD_BYTES } from './record.js';
import type { Recovered } from './recover.js';

/** Plants are taken only in the state `open`. The state `hanging` ends when the write returns. */
type CommitterState =
  | { readonly is: 'open' }
  | { readonly is: 'hanging' | 'closed' | 'poisoned'; readonly error: PlantStoreError };

/** Writes plants to a log. */
export interface Committer {
  readonly state: CommitterState;
  /** The byte offset before which everything is durable. What follows it may still be cut off. */
  readonly end: number;
  /** Aborted when the log is poisoned, with the error with which plants are then refused. */
  readonly poisoned: AbortSignal;
  /** The pending plant with an id. Resolves once it is durable; rejects as `append` does. */
  pending(id: bigint): Promise<NewPlant> | undefined;
  /**
   * Resolves once the plant is durable. Rejects with `unavailable` if its line is not in the log,
   * or if that is unknown. Must be called only while the state is `open`, and only with an id that
   * is neither pending nor in the index.
   *
   * @throws RangeError if the line would be longer than {@link MAX_RECORD_BYTES}.
   */
  append(plant: NewPlant): Promise<'created'>;
  /**
   * Refuses all plants from now on, because it is unknown what the file holds. Marks the log if the
   * cause is that another process has modified it. Returns the error with which plants are refused.
   */
  poison(cause: unknown): PlantStoreError;
  /** Poisons the log and throws if its file was replaced or truncated. */
  requireIntact(): void;
  /**
   * Refuses all plants from now on, and waits for the pending ones. Poisons the log if its file was
   * modified or replaced since the last write.
   */
  close(): Promise<void>;
  /** Waits for the marks of a log that was modified. If one could not be created, tries again. */
  finishMarks(): Promise<void>;
}

/**
 * Plants that are written together. All of them are stored or none, unless the process dies, or
 * what a failed write has left cannot be cut off.
 */
interface Batch {
  /**
   * By id, in the order of their lines. Each batch has its own Map: V8 rehashes a long-lived Map
   * again and again, and links each old table to the next one, so plants that were deleted would
   * stay reachable.
   */
  readonly plants: Map<bigint, BatchedPlant>;
  readonly stored: Promise<'created'>;
  readonly resolve: (outcome: 'created') => void;
  readonly reject: (error: PlantStoreError) => void;
  readonly records: RecordBuffer;
}

interface BatchedPlant {
  readonly plant: NewPlant;
  /** The byte offset of its record within the batch. */
  readonly start: number;
}

/** The size of the first buffer for records: enough for a batch of a hundred ordinary plants. */
const FIRST_BYTES = 8_192;
/** A larger buffer is not reused, so that its memory is freed after a burst or a large plant. */
const MAX_REUSED_BYTES = 262_144;

/**
 * A batch whose records are longer than this takes no more plants. Without this limit, a batch
 * could take every waiting plant, and the first one would wait for the last byte.
 */
const FULL_BATCH_BYTES = 4_194_304;

const { ENOSPC, EDQUOT, EFBIG } = constants.errno;
/**
 * The errors for lack of room. After one of them, it is known what the file holds. Compared by
 * number, because libuv has no name for EDQUOT.
 */
const NO_ROOM: readonly unknown[] = [-ENOSPC, -EDQUOT, -EFBIG];

/**
 * How long a commit may take before its plants are refused, in milliseconds: longer than a busy
 * disk takes, and well before clients give up, many of them after 30 s.
 */
export const HANG_MS = 10_000;

/**
 * Group commit: all plants that arrive during one write are written together in the next one. They
 * are appended to a log that holds what was recovered.
 */
export function createCommitter(log: files.LockedLog, { index, end: start }: Recovered): Committer {
  const { system, file, path, paths, fileId, report } = log;
  /** A disk may fill up and have room again many times a second. */
  const reportRoom = limitRate(report);
  const poisoning = new AbortController();
  let state: CommitterState = { is: 'open' };
  /** Everything before this offset is durable; nothing after it has been acknowledged. */
  let end = start;
  /** The pending batches. The first one is being written. */
  const batches: Batch[] = [];
  /** The last batch, if it takes more plants. */
  let filling: Batch | undefined;
  /**
   * The buffer of an earlier batch, for the next one. If each batch had a new buffer, V8 would
   * collect the whole heap two to four times as often (Node 24).
   */
  let spare: RecordBuffer | undefined;
  let running: Promise<void> | undefined;
  /** Whether it was reported that there is no room, and not yet that there is room again. */
  let isFullReported = false;
  /** Whether all marks were created. `undefined` unless another process has modified the file. */
  let marked: Promise<boolean> | undefined;
  // One timer for all commits: creating one takes 2 µs.
  const timer = system.startTimer(onTimeout, HANG_MS);

  // Bound to the asynchronous context that opened the log, not to that of one request: a batch has
  // the plants of many requests.
  const run = AsyncResource.bind(async (): Promise<void> => {
    // Plants that are added in the same tick go into the same batch.
    await Promise.resolve();
    // Not before each write: the file is checked after each, and after a part of it is cut off.
    poisonUnlessSize(end);
    for (let batch = batches[0]; batch; batch = batches[0]) {
      if (batch === filling) filling = undefined;
      timer.refresh();
      const failure = await commit(batch);
      if (state.is === 'hanging') state = { is: 'open' };
      batches.shift();
      if (batch.records.capacity <= MAX_REUSED_BYTES) spare = batch.records;
      if (failure) batch.reject(failure);
      else batch.resolve('created');
    }
    running = undefined;
  });

  /**
   * Each commit restarts the timer. Between commits, the timer may expire without effect. If the
   * event loop was blocked, the write may have returned without its result having been processed.
   * The immediate runs after all results that are waiting.
   */
  function onTimeout(): void {
    const [batch] = batches;
    setImmediate(() => {
      if (batch && batch === batches[0]) refusePending();
    });
  }

  /** The hanging write goes on, and may still store its plants. All other batches are dropped. */
  function refusePending(): void {
    const error = storeErrors.hanging(path, HANG_MS);
    if (state.is === 'open') state = { is: 'hanging', error };
    report(`${error.message}; plants are refused until it does`);
    // A disk that is still full after the hang is reported again.
    isFullReported = false;
    for (const { reject } of batches) reject(error);
    batches.splice(1);
    filling = undefined;
  }

  /** Writes a batch, and publishes the outcome. Resolves as `writeBatch` does. */
  async function commit(batch: Batch): Promise<PlantStoreError | undefined> {
    const startedAt = performance.now();
    const error = state.is === 'poisoned' ? state.error : await writeBatch(batch);
    const { plants, records } = batch;
    const stored = error
      ? { plants: 0, bytes: 0, error }
      : { plants: plants.size, bytes: records.length };
    publishCommit(startedAt, { store: path, ...stored });
    return error;
  }

  /**
   * Resolves to `undefined` once the plants of a batch are stored, or to the error with which they
   * are refused.
   */
  async function writeBatch({ plants, records }: Batch): Promise<PlantStoreError | undefined> {
    try {
      await file.append(records.bytes());
    } catch (cause) {
      return undoWrite(cause, records.bytes());
    }
    // Another process may have appended since the last check.
    const error = poisonUnlessSize(end + records.length);
    if (error) return error;
    if (state.is === 'hanging') report(`${path}: the write has returned; plants are stored again`);
    if (isFullReported) reportRoom(`${path}: there is room again`);
    isFullReported = false;
    for (const [id, { start }] of plants) index.add(id, end + start);
    end += records.length;
    // A read may have found during the write that another process has modified the file.
    return state.is === 'poisoned' ? state.error : undefined;
  }

  /**
   * Cuts off what a failed write has left: the page cache may hold lines that are not on disk, and
   * the next process would take them for stored. The write has left none of its bytes, the first
   * ones, or all. If other bytes follow the end, another process writes to the file, and nothing is
   * cut off. Resolves to the error with which the plants are refused.
   */
  async function undoWrite(cause: unknown, written: Buffer): Promise<PlantStoreError> {
    // A read may have found during the write that another process has modified the file.
    if (state.is === 'poisoned') return state.error;
    try {
      const left = Buffer.alloc(written.length);
      const bytesRead = await file.read(left, end);
      if (left.compare(written, 0, bytesRead, 0, bytesRead) !== 0) throw fileErrors.changed();
      requireSize(end + bytesRead, end + bytesRead);
      if (bytesRead > 0) {
        await file.truncate(end);
        requireSize(end, end);
      }
    } catch (error) {
      return poison(error);
    }
    if (!NO_ROOM.includes((cause as NodeJS.ErrnoException).errno)) return poison(cause);
    if (!isFullReported)
      reportRoom(`${path}: ${reasonOf(cause)}; plants are refused until there is room`);
    isFullReported = true;
    return toStoreError(path, cause);
  }

  /**
   * Poisons the log if the file was replaced, or if its size is below `min` or above `max`. Returns
   * the error then.
   */
  function poisonUnlessSize(min: number, max = min): PlantStoreError | undefined {
    try {
      requireSize(min, max);
      return undefined;
    } catch (error) {
      return poison(error);
    }
  }

  /** @throws Error if the file was replaced, or if its size is below `min` or above `max`. */
  function requireSize(min: number, max: number): void {
    for (const each of paths) {
      const size = files.sizeOfSameFile(system, each, fileId);
      if (size < min || size > max) throw fileErrors.changed();
    }
  }

  function takeBuffer(): RecordBuffer {
    const records = spare ?? createRecordBuffer(FIRST_BYTES);
    spare = undefined;
    records.truncate(0);
    return records;
  }

  function poison(cause: unknown): PlantStoreError {
    // Even if the log is already poisoned for another reason.
    if (codeOf(cause) === MODIFIED) marked ??= leaveMarks(log);
    if (state.is === 'poisoned') return state.error;
    const error = toStoreError(path, cause);
    state = { is: 'poisoned', error };
    report(`${path}: ${reasonOf(cause)}; no plant is stored until the log is opened again`);
    poisoning.abort(error);
    return error;
  }

  return {
    get state() {
      return state;
    },
    get end() {
      return end;
    },
    poisoned: poisoning.signal,
    pending(id) {
      for (const { plants, stored } of batches) {
        const found = plants.get(id);
        if (found) return stored.then(() => found.plant);
      }
      return undefined;
    },
    append(plant) {
      const batch = filling ?? createBatch(takeBuffer());
      const { plants, records, stored } = batch;
      const start = records.length;
      records.add(plant);
      if (records.length - start > MAX_RECORD_BYTES) {
        records.truncate(start);
        throw storeErrors.tooLarge();
      }
      plants.set(plant.id, { plant, start });
      if (batch !== filling) batches.push(batch);
      filling = records.length > FULL_BATCH_BYTES ? undefined : batch;
      running ??= run();
      return stored;
    },
    poison,
    requireIntact() {
      // A write that is in progress may have extended the file.
      const error = poisonUnlessSize(end, Infinity);
      if (error) throw error;
    },
    async close() {
      if (state.is !== 'poisoned') state = { is: 'closed', error: storeErrors.closed(path) };
      await running;
      // What a failed write has left may follow the end.
      poisonUnlessSize(end, state.is === 'poisoned' ? Infinity : end);
    },
    async finishMarks() {
      if ((await marked) === false) await leaveMarks(log);
    },
  };
}

function createBatch(records: RecordBuffer): Batch {
  let resolve!: Batch['resolve'];
  let reject!: Batch['reject'];
  // Node 20 has no `Promise.withResolvers`.
  const stored = new Promise<'created'>((...settle) => {
    [resolve, reject] = settle;
  });
  return { plants: new Map(), stored, resolve, reject, records };
}
