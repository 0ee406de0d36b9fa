import { createHash } from 'node:crypto';

import { pluralize } from '../report.js';
import type { OpenLog } from './commit.js';
import { damages, faults, storeErrors, toStoreError, type Damage } from './errors.js';
import * as files from './files.js';
import type { OpenFile } from './files.js';
import { createIdIndex, type IdIndex } from './ids.js';
import { linesOf, type Lines } from './lines.js';
import { beginsAsRecord, NEWLINE } from './record.js';
import type { System } from './system.js';

/** Called with the number of bytes read and the size of the file. */
export type OnProgress = (bytes: number, totalBytes: number) => void;

export interface CheckOptions {
  readonly onProgress?: OnProgress;
  /** Aborted to stop: the check then rejects with its reason. */
  readonly signal?: AbortSignal;
}

/** What was found in lines that were read together. */
export interface Checked extends Lines {
  /** The number of plants up to here. */
  readonly plants: number;
  readonly damaged: readonly Damage[];
  /** Whether the last line of the file is a record without its newline. */
  readonly lacksNewline: boolean;
  /** Whether the file is a log, as far as it has been read: whether a line holds a plant, or begins as a record. */
  readonly isLog: boolean;
}

/**
 * Checks the lines of a log, and adds the id of each plant to an index, with the byte offset of its line. A line
 * is damaged if it is not a record, or if the index has its id for another line.
 *
 * @throws Error if the file is not a regular one.
 */
export async function* checkLines(
  file: OpenFile,
  index: IdIndex,
  { onProgress, signal }: CheckOptions = {},
): AsyncGenerator<Checked, void> {
  const size = Number((await files.statRegularFile(file)).size);
  let number = 0;
  let isLog = false;
  for await (const part of linesOf(file)) {
    const { offset, bytes, lines, torn } = part;
    const damaged: Damage[] = [];
    for (const { start, end, id, reason, plant } of lines) {
      number++;
      const at = offset + start;
      const other = id === undefined ? undefined : otherLine(index, id, at);
      const why = other === undefined ? reason : damages.repeatedId(other);
      if (why === undefined) continue;
      const line = bytes.subarray(start, end);
      const rewritten = other === undefined ? plant : undefined;
      damaged.push({ line: number, offset: at, bytes: line, reason: why, plant: rewritten });
      isLog ||= id !== undefined || beginsAsRecord(line, at);
    }
    isLog ||= lines.length > damaged.length || (torn.length > 0 && beginsAsRecord(torn, part.end));
    const lacksNewline = lines.length > damaged.length && bytes.at(-1) !== NEWLINE;
    yield { ...part, plants: index.size, damaged, lacksNewline, isLog };
    // A server may append to the file meanwhile.
    onProgress?.(Math.min(part.end, size), size);
    signal?.throwIfAborted();
  }
}

/** The byte offset at which the index has an id, if that is not the given one. */
function otherLine(index: IdIndex, id: bigint, offset: number): number | undefined {
  const indexed = index.add(id, offset);
  return indexed === offset ? undefined : indexed;
}

/** Checks every line of a log and changes nothing. A server may have the log open. */
export async function* verifyLog(
  system: System,
  path: string,
  options?: CheckOptions,
): AsyncGenerator<Checked, void> {
  try {
    const file = await files.openToRead(system, path);
    try {
      yield* checkLines(file, createIdIndex(), options);
    } finally {
      await file.close();
    }
  } catch (error) {
    throw toStoreError(path, error);
  }
}

/**
 * A log that is open and locked, but whose lines have not been read yet: `index` is filled with the id of each plant
 * and the byte offset of its line.
 */
export type UnreadLog = Omit<OpenLog, 'end'>;

/**
 * Checks every line of a log. Gives the last line its newline if it lacks only that, and cuts off the torn tail:
 * other bytes after the last newline, which were never acknowledged. Resolves to the byte offset at which the last
 * line ends.
 *
 * @throws PlantStoreError `damaged` if a line is not what was written. Nothing is changed then.
 * @throws Error if the file is not a log. Nothing is changed then.
 */
export async function recover(log: UnreadLog, options?: CheckOptions): Promise<number> {
  const { file, path, index } = log;
  let first: Damage | undefined;
  let last: Checked | undefined;
  for await (const checked of checkLines(file, index, options)) {
    first ??= checked.damaged[0];
    if (first && checked.isLog) throw storeErrors.damaged(path, first);
    last = checked;
  }
  if (!last) return 0;
  if (!last.isLog) throw faults.noLog();
  if (last.torn.length > 0) await cutTornTail(log, last);
  return last.lacksNewline ? addNewline(log, last) : last.end;
}

/**
 * Adds the newline that a text tool has removed, or that a write did not reach.
 *
 * @throws Error if the file was modified meanwhile, or cannot be written.
 */
async function addNewline(log: UnreadLog, { end }: Checked): Promise<number> {
  const { system, file, path, fileId, report } = log;
  if (files.sizeOf(system, path, fileId) !== end) throw faults.changed();
  try {
    await file.append(Buffer.of(NEWLINE));
  } catch (error) {
    // The page cache may hold the newline, although the disk does not, and the next process would rely on it.
    if (files.sizeOf(system, path, fileId) === end + 1) await file.truncate(end);
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
async function cutTornTail(log: UnreadLog, { end, torn }: Checked): Promise<void> {
  const { system, file, path, fileId, report } = log;
  const copy = await keepAside(system, path, 'torn', [torn]);
  // A process that has opened a hard link in another folder may have completed its write.
  if (files.sizeOf(system, path, fileId) !== end + torn.length) throw faults.changed();
  await file.truncate(end);
  const length = pluralize(torn.length, 'byte');
  report(`${path}: moved ${length} of an incomplete write to ${copy}`);
}

/**
 * Keeps bytes of the log at `path` in a file beside it, which is named after its content: no other bytes are
 * replaced. Resolves to its path.
 */
export function keepAside(
  system: System,
  path: string,
  kind: 'torn' | 'damaged',
  chunks: AsyncIterable<Buffer> | Iterable<Buffer>,
): Promise<string> {
  return files.createFile(system, `${path}.${kind}.new`, async (file) => {
    const hash = createHash('sha256');
    for await (const chunk of chunks) {
      hash.update(chunk);
      await file.append(chunk);
    }
    return `${path}.${kind}-${hash.digest('hex').slice(0, 16)}`;
  });
}
