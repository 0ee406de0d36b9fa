import { AsyncResource } from 'node:async_hooks';
import { constants } from 'node:os';

import { measureCommit } from '../channels.js';
import { truncateFile, writeAll, type OpenFile } from '../files.js';
import type { NewPlant } from '../plant.js';
import type { Report } from '../report.js';
import type { PlantStoreError } from '../store.js';
import { reasonOf } from '../system-error.js';
import { createBatch, type Batch } from './batch.js';
import { storeErrors, faults, toStoreError } from './errors.js';
import { sizeOf, type FileId } from './file.js';
import { encodeRecord, MAX_RECORD_BYTES } from './record.js';
import type { System } from './system.js';
import { createWatchdog } from './watchdog.js';

/** Group commit: all plants that arrive during one write are written together in the next one. */
export interface Committer {
  /**
   * Resolves once the plant is durable. No plant with the same id may be pending.
   *
   * Rejects with a {@link PlantStoreError} `unavailable` if its line is not in the log, or if that
   * is unknown.
   *
   * @throws RangeError if its line would be longer than {@link MAX_RECORD_BYTES}.
   */
  append(plant: NewPlant): Promise<'created'>;
  /** The plant with that id that is not durable yet. */
  pending(id: bigint): PendingPlant | undefined;
  /** The byte offset before which everything is durable. What follows it may still be cut off. */
  readonly end: number;
  /** The error with which all plants are refused, once the log is poisoned or closed. */
  readonly refusal: PlantStoreError | undefined;
  /** The error with which all plants are refused while a commit hangs. */
  readonly hang: PlantStoreError | undefined;
  /** Aborted, with the cause, when the log is poisoned. */
  readonly poisoned: AbortSignal;
  /** Poisons the log and throws if the file was replaced or truncated. */
  checkFile(): void;
  /** Refuses all plants from now on, because it is unknown what the file holds. */
  poison(cause: unknown): PlantStoreError;
  /** Refuses all plants from now on, and waits for the pending ones. */
  close(): Promise<void>;
}

export interface CommitterOptions {
  readonly system: System;
  readonly file: OpenFile;
  readonly path: string;
  /** To notice if the file at `path` is replaced. */
  readonly fileId: FileId;
  /** The byte offset at which the last line of the file ends. */
  readonly end: number;
  /** Called with the id of each plant once it is durable, and the byte offset of its line. */
  readonly onStored: (id: bigint, offset: number) => void;
  readonly report: Report;
}

/** A plant that is not durable yet. */
export interface PendingPlant {
  readonly plant: NewPlant;
  readonly stored: Promise<'created'>;
}

/**
 * A batch whose lines are longer than this takes no more plants. Otherwise it could grow to all plants that
 * may wait, and none of them would be stored before the last byte is.
 */
const FULL_BATCH_BYTES = 4_194_304;

const { errno } = constants;

/**
 * The errors for lack of room: after them it is known what the file holds. Compared by number,
 * because libuv has no name for EDQUOT.
 */
const NO_ROOM: readonly number[] = [errno.ENOSPC, errno.EDQUOT, errno.EFBIG];

export function createCommitter(options: CommitterOptions): Committer {
  const { system, file, path, fileId, onStored, report } = options;
  const poisoning = new AbortController();
  /** Everything before this offset is durable; nothing after it has been acknowledged. */
  let end = options.end;
  /** The pending batches. The first one is being written. */
  const batches: Batch[] = [];
  /** The last batch, if it takes more plants. */
  let open: Batch | undefined;
  let running: Promise<void> | undefined;
  let refusal: PlantStoreError | undefined;
  let hang: PlantStoreError | undefined;
  let isFull = false;
  const watchdog = createWatchdog({ system, path, operation: 'a write' }, refusePending);

  // Bound to the asynchronous context that opened the log: a batch belongs to many requests.
  const run = AsyncResource.bind(async (): Promise<void> => {
    // Plants that are added in the same tick go into the same batch.
    await Promise.resolve();
    for (let batch; (batch = batches[0]);) {
      if (batch === open) open = undefined;
      watchdog.start();
      const failure = await commit(batch);
      watchdog.stop();
      hang = undefined;
      batches.shift();
      if (failure) batch.reject(failure);
      else batch.resolve('created');
    }
    running = undefined;
  });

  /** Resolves to the reason why the plants of a batch were not stored, if so. */
  async function commit(batch: Batch): Promise<PlantStoreError | undefined> {
    const publish = measureCommit(path);
    try {
      await writeBatch(batch);
    } catch (cause) {
      const error = await undoWrite(cause, batch);
      publish?.({ plants: 0, bytes: 0, error });
      return error;
    }
    publish?.({ plants: batch.plants.size, bytes: batch.bytes });
    return undefined;
  }

  /** The commit that hangs goes on: its plants may be stored. Those that wait behind it will not be. */
  function refusePending(error: PlantStoreError): void {
    hang = error;
    report(`${error.message}; plants are refused until it does`);
    // If there is no room once it has returned, that is reported again.
    isFull = false;
    for (const { reject } of batches) reject(error);
    batches.splice(1);
    open = undefined;
  }

  async function writeBatch({ plants, lines, starts, bytes }: Batch): Promise<void> {
    if (poisoning.signal.aborted) throw poisoning.signal.reason;
    checkSize(end, end);
    await writeAll(system, file, Buffer.from(lines));
    if (hang && !refusal) report(`${path}: the write has returned; plants are stored again`);
    if (isFull) report(`${path}: there is room again`);
    isFull = false;
    let n = 0;
    for (const id of plants.keys()) onStored(id, end + (starts[n++] as number));
    end += bytes;
  }

  /** Poisons the log and throws if `path` is another file by now, or if its size is not in the range. */
  function checkSize(min: number, max: number): void {
    try {
      const size = sizeOf(system, path, fileId);
      if (size < min || size > max) throw faults.changed();
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
    if (poisoning.signal.aborted) return poisoning.signal.reason as PlantStoreError;
    const hasNoRoom = NO_ROOM.includes(-((cause as NodeJS.ErrnoException).errno ?? 0));
    try {
      const written = Buffer.from(lines);
      const left = Buffer.alloc(written.length);
      const { bytesRead } = await file.read(left, 0, left.length, end);
      if (left.compare(written, 0, bytesRead, 0, bytesRead) !== 0) throw faults.changed();
      checkSize(end + bytesRead, end + bytesRead);
      if (bytesRead > 0) await truncateFile(file, end);
    } catch (error) {
      return poison(error);
    }
    if (!hasNoRoom) return poison(cause);
    if (!isFull) report(`${path}: ${reasonOf(cause)}; plants are refused until there is room`);
    isFull = true;
    return toStoreError(path, cause);
  }

  function poison(cause: unknown): PlantStoreError {
    if (!poisoning.signal.aborted) {
      refusal = toStoreError(path, cause);
      report(`${path}: ${reasonOf(cause)}; no plant is stored until the log is opened again`);
      poisoning.abort(refusal);
    }
    return poisoning.signal.reason as PlantStoreError;
  }

  return {
    append(plant) {
      const line = encodeRecord(plant);
      const bytes = Buffer.byteLength(line);
      if (bytes > MAX_RECORD_BYTES) throw storeErrors.tooLarge();
      if (!open) batches.push((open = createBatch()));
      const { plants, starts, stored } = open;
      plants.set(plant.id, plant);
      starts.push(open.bytes);
      open.lines += line;
      open.bytes += bytes;
      if (open.bytes > FULL_BATCH_BYTES) open = undefined;
      running ??= run();
      return stored;
    },
    pending(id) {
      for (const { plants, stored } of batches) {
        const plant = plants.get(id);
        if (plant) return { plant, stored };
      }
      return undefined;
    },
    get end() {
      return end;
    },
    get refusal() {
      return refusal;
    },
    get hang() {
      return hang;
    },
    poisoned: poisoning.signal,
    checkFile: () => checkSize(end, Infinity),
    poison,
    async close() {
      refusal ??= storeErrors.closed(path);
      await running;
    },
  };
}
