import { crc32 } from 'node:zlib';

import { truncateFile, writeFile, type FileSystem, type OpenFile } from '../files.js';
import { pluralize } from '../pluralize.js';
import type { Report } from '../report.js';
import { unusedPath } from './aside.js';
import { damages, storeErrors, faults } from './errors.js';
import { sizeOf, type FileId } from './file.js';
import type { IdIndex } from './id-index.js';
import { lineAt, type TornTail } from './lines.js';
import { scan } from './scan.js';

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
  const torn = await readLines(log, onProgress);
  if (torn.bytes.length > 0) await cutTornTail(log, torn);
  return torn.offset;
}

/** Checks every line and adds its id to the index. Resolves to the torn tail. */
async function readLines(
  { file, path, index }: UnreadLog,
  onProgress?: (bytes: number, totalBytes: number) => void,
): Promise<TornTail> {
  const { size } = await file.stat({ bigint: true });
  const torn = await scan(file, {
    onRecord(id, offset) {
      index.stage(id, offset);
      return undefined;
    },
    onDamage(damage) {
      throw storeErrors.damaged(path, damage);
    },
    onProgress: (bytes) => onProgress?.(bytes, Number(size)),
  });
  const duplicate = await index.addStaged();
  if (!duplicate) return torn;
  const { offset, earlier } = duplicate;
  const reason = damages.repeatedId(earlier);
  throw storeErrors.damaged(path, { line: await lineAt(file, offset), offset, reason });
}

/**
 * Copies a torn tail to a file named after its offset and checksum, then cuts it off.
 *
 * @throws Error if the file was modified meanwhile. It is not cut then.
 */
async function cutTornTail(
  { fs, file, path, fileId, report }: UnreadLog,
  { offset, bytes }: TornTail,
): Promise<void> {
  const wanted = `${path}.torn-${offset}-${crc32(bytes).toString(16)}`;
  const tail = { start: offset, end: offset + bytes.length };
  const copy = await unusedPath(fs, wanted, file, [tail]);
  await writeFile(fs, copy, bytes);
  // A process that has opened a hard link in another folder may have completed its write.
  if (sizeOf(fs, path, fileId) !== offset + bytes.length) throw faults.changed();
  await truncateFile(file, offset);
  const length = pluralize(bytes.length, 'byte');
  report(`${path}: moved ${length} of an incomplete write to ${copy}`);
}
