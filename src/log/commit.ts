import { AsyncResource } from 'node:async_hooks';
import { constants } from 'node:os';

import type { NewPlant } from '../plant.js';
import type { Report } from '../report.js';
import { PlantStoreError } from '../store.js';
import { reasonOf } from '../system-error.js';
import { CHANGED, cutFile, failureOf, writeAll, type FileSystem, type LogFile } from './file.js';
import { encodeRecord } from './record.js';
import { MAX_RECORD_BYTES } from './scan.js';

/** Appends plants to the log in groups: all that arrive during one write leave in the next one. */
export interface Committer {
  /**
   * Resolves once the plant is on the disk. None with the same id may be on its way there.
   *
   * Rejects with a {@link PlantStoreError} `unavailable` if its line is not in the log, or nobody knows.
   *
   * @throws RangeError if its line would be longer than {@link MAX_RECORD_BYTES}.
   */
  append(plant: NewPlant): Promise<'created'>;
  /** The plant with that id that is on its way to the disk. */
  waitingFor(id: bigint): WaitingPlant | undefined;
  /** Why all plants are refused, if they are. */
  readonly refusal: PlantStoreError | undefined;
  /** Aborted, with the cause, when the log is poisoned. */
  readonly poisoned: AbortSignal;
  /** Poisons the log and throws if what was acknowledged is not where `path` leads any more. */
  checkFile(): void;
  /** Refuses all plants from now on, because nobody knows what the file holds. */
  poison(cause: unknown): PlantStoreError;
  /** Refuses all plants from now on, and waits for those under way. */
  close(): Promise<void>;
}

export interface CommitterOptions {
  readonly fs: FileSystem;
  readonly file: LogFile;
  readonly path: string;
  /** The inode of the file: what `path` leads to as long as nobody replaces the file. */
  readonly ino: bigint;
  /** Where the last line of the file ends, in bytes. */
  readonly end: number;
  /** Hears the id of each plant that is on the disk, and at which byte its line starts. */
  readonly onStored: (id: bigint, offset: number) => void;
  readonly report: Report;
}

/** A plant on its way to the disk. */
export interface WaitingPlant {
  readonly plant: NewPlant;
  readonly stored: Promise<'created'>;
}

/** Plants that leave together, in one write, and of which all are stored or none. */
interface Batch {
  /**
   * By their ids, in the order of their lines. One Map for all batches would be rebuilt again and again,
   * and as V8 keeps a way from each old table to the next one, what they once held would outlive its time.
   */
  readonly plants: Map<bigint, NewPlant>;
  readonly stored: Promise<'created'>;
  readonly resolve: (result: 'created') => void;
  readonly reject: (reason: Error) => void;
  /** Their lines, one after the other. */
  lines: string;
  /** Where each line starts within them, in bytes. */
  readonly starts: number[];
  /** The length of the lines, in bytes. */
  bytes: number;
}

/** A batch of this size gets no more plants, in bytes. */
const BATCH_BYTES = 4_194_304;

const { errno } = constants;

/**
 * The errors that mean there is no room, and leave no doubt what the file holds; by their numbers,
 * because libuv has no name for EDQUOT.
 */
const NO_ROOM: readonly number[] = [errno.ENOSPC, errno.EDQUOT, errno.EFBIG];

export function createCommitter(options: CommitterOptions): Committer {
  const { fs, file, path, ino, onStored, report } = options;
  const poisoning = new AbortController();
  /** Every byte before it is on the disk; none after it has been acknowledged. */
  let end = options.end;
  /** The batches on their way, the one that is being written first. */
  const batches: Batch[] = [];
  /** The last of them, if it takes more plants. */
  let open: Batch | undefined;
  let running: Promise<void> | undefined;
  let refusal: PlantStoreError | undefined;
  let full = false;

  // In the context in which the log was opened, not in that of the request that came first.
  const run = AsyncResource.bind(async (): Promise<void> => {
    // What arrives in the same turn of the event loop leaves in the same batch.
    await Promise.resolve();
    for (let batch; (batch = batches[0]);) {
      if (batch === open) open = undefined;
      try {
        await write(batch);
      } catch (error) {
        const failure = await undo(error);
        batches.shift();
        batch.reject(failure);
        continue;
      }
      batches.shift();
      batch.resolve('created');
    }
    running = undefined;
  });

  async function write({ plants, lines, starts, bytes }: Batch): Promise<void> {
    if (poisoning.signal.aborted) throw poisoning.signal.reason;
    checkSize((size) => size === BigInt(end));
    await writeAll(fs, file, Buffer.from(lines));
    if (full) report(`${path}: there is room again`);
    full = false;
    let n = 0;
    for (const id of plants.keys()) onStored(id, end + (starts[n++] as number));
    end += bytes;
  }

  /** Poisons the log and throws if `path` leads to another file, or the size is not right. */
  function checkSize(isRight: (size: bigint) => boolean): void {
    try {
      const now = fs.statSync(path, { bigint: true });
      if (now.ino !== ino || !isRight(now.size)) throw new Error(CHANGED);
    } catch (error) {
      throw poison(error);
    }
  }

  /**
   * Cuts off what a failed write left. The page cache may hold lines of it that are not on the disk,
   * and the next process would take them for stored.
   */
  async function undo(cause: unknown): Promise<PlantStoreError> {
    if (poisoning.signal.aborted) return poisoning.signal.reason as PlantStoreError;
    const hasNoRoom = NO_ROOM.includes(-((cause as NodeJS.ErrnoException).errno ?? 0));
    try {
      await cutFile(file, end);
    } catch (error) {
      return poison(error);
    }
    if (!hasNoRoom) return poison(cause);
    if (!full) report(`${path}: ${reasonOf(cause)}; plants are refused until there is room`);
    full = true;
    return failureOf(path, cause);
  }

  function poison(cause: unknown): PlantStoreError {
    if (!poisoning.signal.aborted) {
      refusal = failureOf(path, cause);
      report(`${path}: ${reasonOf(cause)}; no plant is stored until the log is opened again`);
      poisoning.abort(refusal);
    }
    return poisoning.signal.reason as PlantStoreError;
  }

  return {
    append(plant) {
      const line = encodeRecord(plant);
      const bytes = Buffer.byteLength(line);
      if (bytes > MAX_RECORD_BYTES) throw new RangeError('the plant is too large');
      if (!open) batches.push((open = createBatch()));
      const { plants, starts, stored } = open;
      plants.set(plant.id, plant);
      starts.push(open.bytes);
      open.lines += line;
      open.bytes += bytes;
      if (open.bytes > BATCH_BYTES) open = undefined;
      running ??= run();
      return stored;
    },
    waitingFor(id) {
      for (const { plants, stored } of batches) {
        const plant = plants.get(id);
        if (plant) return { plant, stored };
      }
      return undefined;
    },
    get refusal() {
      return refusal;
    },
    poisoned: poisoning.signal,
    checkFile: () => checkSize((size) => size >= BigInt(end)),
    poison,
    async close() {
      refusal ??= new PlantStoreError('unavailable', `${path}: the log is closed`);
      await running;
    },
  };
}

function createBatch(): Batch {
  let resolve!: Batch['resolve'];
  let reject!: Batch['reject'];
  const stored = new Promise<'created'>((...settle) => {
    [resolve, reject] = settle;
  });
  return { plants: new Map(), stored, resolve, reject, lines: '', starts: [], bytes: 0 };
}
