import { pluralize } from '../pluralize.js';
import type { Report } from '../report.js';
import { keepAside } from './aside.js';
import { damages, faults, storeErrors, toStoreError, type Damage } from './errors.js';
import {
  openToRead,
  sizeOf,
  statRegularFile,
  truncateFile,
  type FileId,
  type FileSystem,
  type OpenFile,
} from './files.js';
import { createIdIndex, type IdIndex } from './ids.js';
import { linesOf } from './lines.js';
import { damageOf, NEWLINE } from './record.js';

/** What was found in lines that were read together. */
export interface Checked {
  /** The byte offset at which the last of them ends. */
  readonly end: number;
  /** The damaged ones. Their bytes are valid until the next lines are requested. */
  readonly damaged: readonly Damage[];
  /** The bytes after the last newline of the file, which come last, after `end`. */
  readonly tail: Buffer | undefined;
}

/**
 * Checks the lines of a log, and adds the id of each plant to an index, with the byte offset of its line. A line
 * is damaged if it is not a record, or repeats an earlier id.
 */
export async function* checkLines(file: OpenFile, index: IdIndex): AsyncGenerator<Checked, void> {
  let line = 0;
  for await (const { offset, bytes, lines } of linesOf(file)) {
    const damaged: Damage[] = [];
    if (bytes.at(-1) !== NEWLINE) {
      yield { end: offset, damaged, tail: bytes };
      return;
    }
    for (const { start, end, id } of lines) {
      line++;
      const earlier = id === undefined ? undefined : index.add(id, offset + start);
      if (id !== undefined && earlier === undefined) continue;
      const text = bytes.subarray(start, end);
      const reason = earlier === undefined ? damageOf(text) : damages.repeatedId(earlier);
      damaged.push({ line, offset: offset + start, bytes: text, reason });
    }
    yield { end: offset + bytes.length, damaged, tail: undefined };
  }
}

/** What was found in a part of a log. */
export interface Verified extends Checked {
  /** The number of plants up to here. */
  readonly plants: number;
  /** The size that the file had at first. A server may append to it meanwhile. */
  readonly size: number;
}

/** Checks every line of a log and changes nothing. A server may have the log open. */
export async function* verifyLog(fs: FileSystem, path: string): AsyncGenerator<Verified, void> {
  try {
    const file = await openToRead(fs, path);
    try {
      const size = Number((await statRegularFile(file)).size);
      const index = createIdIndex();
      for await (const checked of checkLines(file, index))
        yield { ...checked, plants: index.size, size };
    } finally {
      await file.close();
    }
  } catch (error) {
    throw toStoreError(path, error);
  }
}

/** A log that is open and locked, but whose lines have not been read yet. */
export interface UnreadLog {
  readonly fs: FileSystem;
  readonly file: OpenFile;
  readonly path: string;
  readonly fileId: FileId;
  readonly report: Report;
  /** Filled with the id of each plant and the byte offset of its line. */
  readonly index: IdIndex;
}

/**
 * Checks every line of a log, and cuts off the torn tail: the bytes after the last newline, which
 * were never acknowledged. Resolves to the byte offset at which the last line ends.
 *
 * @throws PlantStoreError `damaged` if a line is not what was written. Nothing is changed then.
 */
export async function recover(
  log: UnreadLog,
  onProgress?: (bytes: number, totalBytes: number) => void,
): Promise<number> {
  const { file, path, index } = log;
  const { size } = await file.stat({ bigint: true });
  let recovered = 0;
  for await (const { end, damaged, tail } of checkLines(file, index)) {
    const [damage] = damaged;
    if (damage) throw storeErrors.damaged(path, damage);
    recovered = end;
    onProgress?.(end, Number(size));
    if (tail) await cutTornTail(log, end, tail);
  }
  return recovered;
}

/**
 * Copies a torn tail to a file beside the log, then cuts it off.
 *
 * @throws Error if the file was modified meanwhile. It is not cut then.
 */
async function cutTornTail(
  { fs, file, path, fileId, report }: UnreadLog,
  offset: number,
  bytes: Buffer,
): Promise<void> {
  const end = offset + bytes.length;
  const copy = await keepAside(fs, path, file, 'torn', [{ start: offset, end }]);
  // A process that has opened a hard link in another folder may have completed its write.
  if (sizeOf(fs, path, fileId) !== end) throw faults.changed();
  await truncateFile(file, offset);
  const length = pluralize(bytes.length, 'byte');
  report(`${path}: moved ${length} of an incomplete write to ${copy}`);
}
