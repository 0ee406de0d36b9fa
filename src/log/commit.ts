import { AsyncResource } from 'node:async_hooks';
import { constants } from 'node:os';
// Not the global, which fake timers of test runners replace.
import { setImmediate } from 'node:timers';

import { publishCommit } from '../channels.js';
import type { NewPlant } from '../plant.js';
import type { PlantStoreError } from '../store.js';
import { codeOf, reasonOf } from '../system-error.js';
import { fileErrors, MODIFIED, storeErrors, toStoreError } from './errors.js';
import * as files from './files.js';
import { leaveMark } from './mark.js';
import { encodeRecord, MAX_RECORD_BYTES } from './record.js';
import type { OpenLog } from './recover.js';

/** Plants are taken only in the state `open`. A commit that hangs may still return. */
type CommitterState =
  | { readonly is: 'open' }
  | { readonly is: 'hanging' | 'closed' | 'poisoned'; readonly error: PlantStoreError };

/** Plants that are written together: all of them are stored or none, unless the process dies or a cut fails. */
interface Batch {
  /**
   * By id, in the order of their lines. Each batch has its own Map: V8 rehashes a long-lived one
   * again and again, and links each old table to the next one, so plants that were deleted would
   * stay reachable.
   */
  readonly plants: Map<bigint, NewPlant>;
  readonly stored: Promise<'created'>;
  readonly resolve: (outcome: 'created') => void;
  readonly reject: (error: PlantStoreError) => void;
  /** The lines of the plants, concatenated. */
  lines: string;
  /** The byte offset of each line within `lines`. */
  readonly starts: number[];
  /** The length of `lines` in UTF-8, in bytes. */
  bytes: number;
}

/**
 * A batch whose lines are longer than this takes no more plants. Otherwise it could grow to all plants that
 * may wait, and none of them would be stored before the last byte is.
 */
const FULL_BATCH_BYTES = 4_194_304;

const { ENOSPC, EDQUOT, EFBIG } = constants.errno;
/**
 * The errors for lack of room. After one of them, it is known what the file holds. Compared by number, because libuv
 * has no name for EDQUOT.
 */
const NO_ROOM: readonly unknown[] = [-ENOSPC, -EDQUOT, -EFBIG];

/** How long a commit may take, in milliseconds: a busy disk needs less, and many clients wait at most 30 s. */
export const HANG_MS = 10_000;

/**
 * Group commit: all plants that arrive during one write are written together in the next one. `start` is the byte
 * offset at which the last line ends.
 */
export function createCommitter(log: OpenLog, start: number) {
  const { system, file, path, fileId, index, report } = log;
  const poisoning = new AbortController();
  let state: CommitterState = { is: 'open' };
  /** Everything before this offset is durable; nothing after it has been acknowledged. */
  let end = start;
  /** The pending batches. The first one is being written. */
  const batches: Batch[] = [];
  /** The last batch, if it takes more plants. */
  let filling: Batch | undefined;
  let running: Promise<void> | undefined;
  /** Whether lack of room has been reported. */
  let isFull = false;
  let marked: Promise<void> | undefined;
  // One for all commits, because creating one takes 2 µs. Between commits, it may expire without effect.
  // `setImmediate`: if the event loop was blocked, the write may have returned, and its result not been read yet.
  const timer = system.startTimer(() => setImmediate(refusePending, batches[0]), HANG_MS);

  // Bound to the asynchronous context that opened the log: a batch belongs to many requests.
  const run = AsyncResource.bind(async (): Promise<void> => {
    // Plants that are added in the same tick go into the same batch.
    await Promise.resolve();
    for (let batch; (batch = batches[0]);) {
      if (batch === filling) filling = undefined;
      timer.refresh();
      const failure = await commit(batch);
      if (state.is === 'hanging') state = { is: 'open' };
      batches.shift();
      if (failure) batch.reject(failure);
      else batch.resolve('created');
    }
    running = undefined;
  });

  /** The commit that hangs goes on: its plants may be stored. Those that wait behind it will not be. */
  function refusePending(hanging: Batch | undefined): void {
    if (!hanging || hanging !== batches[0]) return;
    const error = storeErrors.hanging(path, HANG_MS);
    if (state.is === 'open') state = { is: 'hanging', error };
    report(`${error.message}; plants are refused until it does`);
    // If there is no room once it has returned, that is reported again.
    isFull = false;
    for (const { reject } of batches) reject(error);
    batches.splice(1);
    filling = undefined;
  }

  /** Resolves to the reason why the plants of a batch were not stored, if so. */
  async function commit(batch: Batch): Promise<PlantStoreError | undefined> {
    const startedAt = performance.now();
    const error = await writeBatch(batch).then(
      // Poisoned meanwhile: something else has changed the file.
      () => (state.is === 'poisoned' ? state.error : undefined),
      (cause: unknown) => undoWrite(cause, batch),
    );
    const { plants, bytes } = batch;
    const stored = error ? { plants: 0, bytes: 0, error } : { plants: plants.size, bytes };
    publishCommit(startedAt, { store: path, ...stored });
    return error;
  }

  async function writeBatch({ plants, lines, starts, bytes }: Batch): Promise<void> {
    if (state.is === 'poisoned') throw state.error;
    checkSize(end, end);
    await file.append(Buffer.from(lines));
    if (state.is === 'hanging') report(`${path}: the write has returned; plants are stored again`);
    if (isFull) report(`${path}: there is room again`);
    isFull = false;
    let n = 0;
    for (const id of plants.keys()) index.add(id, end + (starts[n++] as number));
    end += bytes;
  }

  /** Poisons the log and throws if `path` is another file by now, or if its size is not in the range. */
  function checkSize(min: number, max: number): void {
    try {
      const size = files.sizeOf(system, path, fileId);
      if (size < min || size > max) throw fileErrors.changed();
    } catch (error) {
      throw poison(error);
    }
  }

  /**
   * Cuts off what a failed write left: the page cache may hold lines of it that are not on disk,
   * and the next process would take them for stored. It may have left nothing, all of its bytes, or the
   * first ones. If anything else follows the end, another process writes to the file: nothing is cut then.
   */
  async function undoWrite(cause: unknown, { lines }: Batch): Promise<PlantStoreError> {
    if (state.is === 'poisoned') return state.error;
    try {
      const written = Buffer.from(lines);
      const left = Buffer.alloc(written.length);
      const bytesRead = await file.read(left, end);
      if (left.compare(written, 0, bytesRead, 0, bytesRead) !== 0) throw fileErrors.changed();
      checkSize(end + bytesRead, end + bytesRead);
      if (bytesRead > 0) await file.truncate(end);
    } catch (error) {
      return poison(error);
    }
    if (!NO_ROOM.includes((cause as NodeJS.ErrnoException).errno)) return poison(cause);
    if (!isFull) report(`${path}: ${reasonOf(cause)}; plants are refused until there is room`);
    isFull = true;
    return toStoreError(path, cause);
  }

  function poison(cause: unknown): PlantStoreError {
    if (codeOf(cause) === MODIFIED) marked ??= leaveMark(system, path, report);
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
    /** The byte offset of the line with an id, or the pending plant once it is durable. */
    find(id: bigint): number | Promise<NewPlant> | undefined {
      for (const { plants, stored } of batches) {
        const plant = plants.get(id);
        if (plant) return stored.then(() => plant);
      }
      return index.get(id);
    },
    /**
     * Resolves once the plant is durable. Only for an id that is not found, while the state is `open`.
     *
     * Rejects with `unavailable` if its line is not in the log, or if that is unknown.
     *
     * @throws RangeError if its line would be longer than {@link MAX_RECORD_BYTES}.
     */
    append(plant: NewPlant): Promise<'created'> {
      const line = encodeRecord(plant);
      const bytes = Buffer.byteLength(line);
      if (bytes > MAX_RECORD_BYTES) throw storeErrors.tooLarge();
      if (!filling) batches.push((filling = createBatch()));
      const { plants, starts, stored } = filling;
      plants.set(plant.id, plant);
      starts.push(filling.bytes);
      filling.lines += line;
      filling.bytes += bytes;
      if (filling.bytes > FULL_BATCH_BYTES) filling = undefined;
      running ??= run();
      return stored;
    },
    /** The byte offset before which everything is durable. What follows it may still be cut off. */
    get end() {
      return end;
    },
    /** Aborted when the log is poisoned, with the error of plants from then on as its reason. */
    get poisoned(): AbortSignal {
      return poisoning.signal;
    },
    /** Poisons the log and throws if the file was replaced or truncated. */
    checkFile: () => checkSize(end, Infinity),
    /** Refuses all plants from now on, because it is unknown what the file holds. */
    poison,
    /** Resolves once the log is marked, if it was poisoned because something else has modified its file. */
    get marked() {
      return marked;
    },
    /**
     * Refuses all plants from now on, and waits for the pending ones. Poisons the log if the file was modified or
     * replaced since the last write.
     */
    async close() {
      if (state.is !== 'poisoned') state = { is: 'closed', error: storeErrors.closed(path) };
      await running;
      try {
        // What a failed write has left may follow the end.
        checkSize(end, state.is === 'poisoned' ? Infinity : end);
      } catch {
        // The log is poisoned, and marked if its file was modified.
      }
    },
  };
}

function createBatch(): Batch {
  let resolve!: Batch['resolve'];
  let reject!: Batch['reject'];
  // Node 20 has no `Promise.withResolvers`.
  const stored = new Promise<'created'>((...settle) => {
    [resolve, reject] = settle;
  });
  return { plants: new Map(), stored, resolve, reject, lines: '', starts: [], bytes: 0 };
}
