import { pluralize } from '../report.js';
import { checkLines, type CheckedPart, type ReadingOptions } from './check.js';
import { fileErrors } from './errors.js';
import { keepTorn, sizeOfSameFile, type LockedLog } from './files.js';
import { createIdIndex, type IdIndex } from './ids.js';
import { errorOfLine, type Line } from './lines.js';
import { NEWLINE } from './encode.js';

/** What a log holds. */
export interface Recovered {
  /** The ids of the plants, with the byte offsets of their lines. */
  readonly index: IdIndex;
  /** The byte offset at which the last line ends. */
  readonly end: number;
}

/**
 * Checks every line of a log. If the last line lacks only its newline, the newline is added. The
 * torn tail is cut off: the bytes that an incomplete write has left after the last line. They were
 * never acknowledged.
 *
 * @throws PlantStoreError `damaged` if a line is not what was written. Nothing is changed then.
 * @throws Error if the file is not a log. Nothing is changed then.
 */
export async function recover(log: LockedLog, options?: ReadingOptions): Promise<Recovered> {
  const { file, path } = log;
  const index = createIdIndex();
  let firstDamaged: Line | undefined;
  let last: CheckedPart | undefined;
  for await (const checked of checkLines(file, index, options)) {
    firstDamaged ??= checked.damaged[0];
    // In a file that is no log, every line would be damaged. So reading goes on until a line shows
    // that the file is a log.
    if (firstDamaged && checked.isLog) throw errorOfLine(path, firstDamaged);
    last = checked;
  }
  if (!last) return { index, end: 0 };
  if (!last.isLog) throw fileErrors.noLog();
  if (last.torn.length > 0) await cutTornTail(log, last);
  return { index, end: last.lacksNewline ? await addNewline(log, last) : last.end };
}

/**
 * Adds the newline that a text tool has removed, or that a write did not reach.
 *
 * @throws Error if the file was modified meanwhile, or cannot be written.
 */
async function addNewline(log: LockedLog, { end }: CheckedPart): Promise<number> {
  const { system, file, path, fileId, report } = log;
  if (sizeOfSameFile(system, path, fileId) !== end) throw fileErrors.changed();
  try {
    await file.append(Buffer.of(NEWLINE));
  } catch (error) {
    // The page cache may hold the newline although the disk does not. The next process would take
    // the line for durable.
    if (sizeOfSameFile(system, path, fileId) === end + 1) await file.truncate(end);
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
async function cutTornTail(log: LockedLog, { end, torn }: CheckedPart): Promise<void> {
  const { system, file, path, fileId, report } = log;
  const copy = await keepTorn(system, path, torn);
  // The lock does not cover a hard link in another folder. A process that has opened the log there
  // may have completed its write.
  if (sizeOfSameFile(system, path, fileId) !== end + torn.length) throw fileErrors.changed();
  await file.truncate(end);
  const length = pluralize(torn.length, 'byte');
  report(`${path}: moved ${length} of an incomplete write to ${copy}`);
}
