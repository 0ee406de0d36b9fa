import { constants } from 'node:os';

import type { NewPlant } from '../plant.js';
import type { Report } from '../report.js';
import { PlantStoreError } from '../store.js';
import { CHANGED, failureOf, reasonOf, writeAll, type FileSystem, type LogFile } from './file.js';
import { encodeRecord } from './record.js';
import { MAX_RECORD_BYTES } from './scan.js';

/** Appends plants to the log in groups: all that arrive during one write leave in the next. */
export interface Committer {
  append(plant: WaitingPlant): void;
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
  readonly report: Report;
}

/** A plant on its way to the disk. One of the two is called, once. */
export interface WaitingPlant {
  readonly plant: NewPlant;
  /** Hears the byte offset of the plant's line once it is on the disk. */
  onStored(offset: number): void;
  /**
   * Hears why the line is not in the log, or nobody knows: a {@link PlantStoreError} `unavailable`, or a
   * RangeError if it would be longer than {@link MAX_RECORD_BYTES}.
   */
  onRefused(error: Error): void;
}

interface Line {
  readonly waiting: WaitingPlant;
  readonly text: string;
  readonly bytes: number;
}

/**
 * A batch that is longer gets no more lines, in bytes. Plants become lines no sooner than their batch
 * is written, so this, and not how many are waiting, is what lines take of the memory.
 */
const BATCH_BYTES = 4_194_304;

const { errno } = constants;

/**
 * The errors that mean there is no room, and leave no doubt what the file holds; by their numbers,
 * because libuv has no name for EDQUOT.
 */
const NO_ROOM: readonly number[] = [errno.ENOSPC, errno.EDQUOT, errno.EFBIG];

export function createCommitter(options: CommitterOptions): Committer {
  const { fs, file, path, ino, report } = options;
  const poisoning = new AbortController();
  /** Every byte before it is on the disk; none after it has been acknowledged. */
  let end = options.end;
  let waiting: WaitingPlant[] = [];
  let running: Promise<void> | undefined;
  let refusal: PlantStoreError | undefined;
  let full = false;

  async function run(): Promise<void> {
    // What arrives in the same turn of the event loop leaves in the same batch.
    await Promise.resolve();
    while (waiting.length > 0) {
      const batch = nextBatch();
      try {
        await write(batch);
        for (const { waiting, bytes } of batch) {
          waiting.onStored(end);
          end += bytes;
        }
      } catch (error) {
        const failure = await undo(error);
        for (const { waiting } of batch) waiting.onRefused(failure);
      }
    }
    running = undefined;
  }

  /** The lines of those that have waited longest. */
  function nextBatch(): Line[] {
    const batch: Line[] = [];
    let length = 0;
    let taken = 0;
    for (const each of waiting) {
      if (length >= BATCH_BYTES) break;
      taken++;
      try {
        const line = lineOf(each);
        batch.push(line);
        length += line.bytes;
      } catch (error) {
        each.onRefused(error as Error);
      }
    }
    waiting = waiting.slice(taken);
    return batch;
  }

  async function write(batch: readonly Line[]): Promise<void> {
    if (poisoning.signal.aborted) throw poisoning.signal.reason;
    if (sizeNow() !== BigInt(end)) throw new Error(CHANGED);
    await writeAll(fs, file, bytesOf(batch));
    if (full) report(`${path}: there is room again`);
    full = false;
  }

  /** The size of the file, if `path` still leads to it. */
  function sizeNow(): bigint {
    const now = fs.statSync(path, { bigint: true });
    if (now.ino !== ino) throw new Error(CHANGED);
    return now.size;
  }

  /** Makes the file what it was before a write that failed, where nothing worse has happened. */
  async function undo(cause: unknown): Promise<PlantStoreError> {
    if (!NO_ROOM.includes(-((cause as NodeJS.ErrnoException).errno ?? 0))) return poison(cause);
    try {
      await file.truncate(end);
    } catch (error) {
      return poison(error);
    }
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
      waiting.push(plant);
      running ??= run();
    },
    get refusal() {
      return refusal;
    },
    poisoned: poisoning.signal,
    checkFile() {
      try {
        if (sizeNow() < BigInt(end)) throw new Error(CHANGED);
      } catch (error) {
        throw poison(error);
      }
    },
    poison,
    async close() {
      refusal ??= new PlantStoreError('unavailable', `${path}: the log is closed`);
      await running;
    },
  };
}

function lineOf(waiting: WaitingPlant): Line {
  const text = encodeRecord(waiting.plant);
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_RECORD_BYTES) throw new RangeError('the plant is too large');
  return { waiting, text, bytes };
}

function bytesOf(batch: readonly Line[]): Buffer {
  let length = 0;
  for (const { bytes } of batch) length += bytes;
  const buffer = Buffer.allocUnsafe(length);
  let at = 0;
  for (const { text } of batch) at += buffer.write(text, at);
  return buffer;
}
