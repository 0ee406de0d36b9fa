import { constants } from 'node:os';

import type { NewPlant } from '../plant.js';
import type { Report } from '../report.js';
import { PlantStoreError } from '../store.js';
import { createCommitDelay } from './delay.js';
import { CHANGED, failureOf, reasonOf, writeAll, type FileSystem, type LogFile } from './file.js';
import { encodeRecord } from './record.js';
import { MAX_RECORD_BYTES } from './scan.js';

/**
 * Appends plants to the log in groups: all that arrive during one write, and soon after it, leave in
 * the next.
 */
export interface Committer {
  /**
   * Resolves once the plant is on the disk. None with the same id may be on its way there.
   *
   * Rejects if its line is not in the log, or nobody knows: with a {@link PlantStoreError} `unavailable`,
   * or with a RangeError if it would be longer than {@link MAX_RECORD_BYTES}.
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

interface Appended extends WaitingPlant {
  readonly resolve: (result: 'created') => void;
  readonly reject: (reason: Error) => void;
}

interface Line {
  readonly appended: Appended;
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
  const { fs, file, path, ino, onStored, report } = options;
  const poisoning = new AbortController();
  /** Every byte before it is on the disk; none after it has been acknowledged. */
  let end = options.end;
  /**
   * Plants by their ids: those of the next batches, and those of the ones that are being written.
   *
   * Each Map serves for one round only. One that went on for ever would be rebuilt again and again,
   * and as V8 keeps a way from each old table to the next one, what they once held would outlive its time.
   */
  let waiting = new Map<bigint, Appended>();
  let leaving = new Map<bigint, Appended>();
  const delay = createCommitDelay();
  let running: Promise<void> | undefined;
  let refusal: PlantStoreError | undefined;
  let full = false;

  async function run(): Promise<void> {
    // What arrives in the same turn of the event loop leaves in the same batch.
    await Promise.resolve();
    while (waiting.size > 0) {
      let stored = 0;
      let writeMs = 0;
      leaving = waiting;
      waiting = new Map();
      for (const batch of batchesOf(leaving)) {
        const start = performance.now();
        try {
          await write(batch);
          writeMs = performance.now() - start;
          // Those who wait go on when the next write is on its way, unless that one is delayed for
          // them: nothing else is awaited before it.
          for (const { appended, bytes } of batch) {
            onStored(appended.plant.id, end);
            end += bytes;
            leaving.delete(appended.plant.id);
            appended.resolve('created');
          }
          stored = batch.length;
        } catch (error) {
          stored = 0;
          const failure = await undo(error);
          for (const { appended } of batch) refuse(leaving, appended, failure);
        }
      }
      const delayed = delay.begin(stored, waiting.size, writeMs);
      if (delayed) await delayed;
    }
    running = undefined;
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
      let resolve!: Appended['resolve'];
      let reject!: Appended['reject'];
      const stored = new Promise<'created'>((...settle) => {
        [resolve, reject] = settle;
      });
      waiting.set(plant.id, { plant, stored, resolve, reject });
      delay.arrived();
      running ??= run();
      return stored;
    },
    waitingFor: (id) => waiting.get(id) ?? leaving.get(id),
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

/** The lines of plants in batches that are not too long. Refuses those whose line would be. */
function* batchesOf(plants: Map<bigint, Appended>): Generator<Line[]> {
  let batch: Line[] = [];
  let length = 0;
  for (const each of plants.values()) {
    try {
      const line = lineOf(each);
      batch.push(line);
      length += line.bytes;
    } catch (error) {
      refuse(plants, each, error as Error);
    }
    if (length < BATCH_BYTES) continue;
    yield batch;
    batch = [];
    length = 0;
  }
  if (length > 0) yield batch;
}

/** From then on the plant can be tried again. */
function refuse(plants: Map<bigint, Appended>, { plant, reject }: Appended, reason: Error): void {
  plants.delete(plant.id);
  reject(reason);
}

function lineOf(appended: Appended): Line {
  const text = encodeRecord(appended.plant);
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_RECORD_BYTES) throw new RangeError('the plant is too large');
  return { appended, text, bytes };
}

function bytesOf(batch: readonly Line[]): Buffer {
  let length = 0;
  for (const { bytes } of batch) length += bytes;
  const buffer = Buffer.allocUnsafe(length);
  let at = 0;
  for (const { text } of batch) at += buffer.write(text, at);
  return buffer;
}
