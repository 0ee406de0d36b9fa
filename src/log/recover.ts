import { createHash } from 'node:crypto';

import { pluralize, type Report } from '../report.js';
import { damages, faults, storeErrors, toStoreError, type Damage } from './errors.js';
import {
  createFile,
  openToRead,
  sizeOf,
  statRegularFile,
  truncateFile,
  writeAll,
  type FileId,
  type FileSystem,
  type OpenFile,
} from './files.js';
import { createIdIndex, type IdIndex } from './ids.js';
import { linesOf, type Lines } from './lines.js';
import { beginsAsRecord, NEWLINE, readLoosely } from './record.js';

/** What was found in lines that were read together. */
export interface Checked extends Lines {
  /** The byte offset at which the last line ends. */
  readonly end: number;
  readonly damaged: readonly Damage[];
  /** Whether the last line of the file is a record without its newline. */
  readonly lacksNewline: boolean;
  /** Whether the file is a log, as far as it has been read: whether a line holds a plant, or begins as a record. */
  readonly isLog: boolean;
}

/**
 * Checks the lines of a log, and adds the id of each plant to an index, with the byte offset of its line. A line
 * is damaged if it is not a record, or repeats an earlier id.
 */
export async function* checkLines(file: OpenFile, index: IdIndex): AsyncGenerator<Checked, void> {
  let number = 0;
  let isLog = false;
  for await (const part of linesOf(file)) {
    const { offset, bytes, lines, isTorn } = part;
    const damaged: Damage[] = [];
    for (const { start, end, id } of lines) {
      number++;
      if (id !== undefined && index.add(id, offset + start) === undefined) continue;
      const line = bytes.subarray(start, end);
      const { reason, plant } = readLoosely(line);
      const earlier = plant && index.add(plant.id, offset + start);
      damaged.push({
        line: number,
        offset: offset + start,
        bytes: line,
        ...(earlier === undefined
          ? { reason, plant }
          : { reason: damages.repeatedId(earlier), plant: undefined }),
      });
      isLog ||= plant !== undefined || beginsAsRecord(line, offset + start);
    }
    isLog ||= lines.length > damaged.length || (isTorn && beginsAsRecord(bytes, offset));
    const lacksNewline = !isTorn && damaged.length === 0 && bytes.at(-1) !== NEWLINE;
    const end = isTorn ? offset : offset + bytes.length;
    yield { ...part, end, damaged, lacksNewline, isLog };
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
 * Checks every line of a log. Gives the last line its newline if it lacks only that, and cuts off the torn tail:
 * other bytes after the last newline, which were never acknowledged. Resolves to the byte offset at which the last
 * line ends.
 *
 * @throws PlantStoreError `damaged` if a line is not what was written. Nothing is changed then.
 * @throws Error if the file is not a log. Nothing is changed then.
 */
export async function recover(
  log: UnreadLog,
  onProgress?: (bytes: number, totalBytes: number) => void,
): Promise<number> {
  const { file, path, index } = log;
  const { size } = await file.stat({ bigint: true });
  let first: Damage | undefined;
  let last: Checked | undefined;
  for await (const checked of checkLines(file, index)) {
    first ??= checked.damaged[0];
    if (first && checked.isLog) throw storeErrors.damaged(path, first);
    last = checked;
    onProgress?.(checked.end, Number(size));
  }
  if (!last) return 0;
  if (!last.isLog) throw faults.noLog();
  if (last.isTorn) await cutTornTail(log, last);
  return last.lacksNewline ? addNewline(log, last) : last.end;
}

/**
 * Adds the newline that a text tool has removed, or that a write did not reach.
 *
 * @throws Error if the file was modified meanwhile, or cannot be written.
 */
async function addNewline(
  { fs, file, path, fileId, report }: UnreadLog,
  { end, next }: Checked,
): Promise<number> {
  if (sizeOf(fs, path, fileId) !== next) throw faults.changed();
  if (next > end) await truncateFile(file, end);
  try {
    await writeAll(fs, file, Buffer.of(NEWLINE));
  } catch (error) {
    // The page cache may hold the newline, although the disk does not, and the next process would rely on it.
    if (sizeOf(fs, path, fileId) === end + 1) await truncateFile(file, end);
    throw error;
  }
  report(`${path}: the last line lacked its newline, which was added`);
  return end + 1;
}

/**
 * Copies a torn tail to a file beside the log, then cuts it off.
 *
 * @throws Error if the file was modified meanwhile. It is not cut then.
 */
async function cutTornTail(
  { fs, file, path, fileId, report }: UnreadLog,
  { offset, bytes, next }: Checked,
): Promise<void> {
  const copy = await keepAside(fs, path, 'torn', [bytes]);
  // A process that has opened a hard link in another folder may have completed its write.
  if (sizeOf(fs, path, fileId) !== next) throw faults.changed();
  await truncateFile(file, offset);
  const length = pluralize(bytes.length, 'byte');
  report(`${path}: moved ${length} of an incomplete write to ${copy}`);
}

/**
 * Keeps bytes of the log at `path` in a file beside it, which is named after its content: no other bytes are
 * replaced. Resolves to its path.
 */
export function keepAside(
  fs: FileSystem,
  path: string,
  kind: 'torn' | 'damaged',
  chunks: AsyncIterable<Buffer> | Iterable<Buffer>,
): Promise<string> {
  return createFile(fs, `${path}.${kind}.new`, async (file) => {
    const hash = createHash('sha256');
    for await (const chunk of chunks) {
      hash.update(chunk);
      await writeAll(fs, file, chunk);
    }
    return `${path}.${kind}-${hash.digest('hex').slice(0, 16)}`;
  });
}
