import { pluralize } from '../pluralize.js';
import type { Report } from '../report.js';
import { keepAside } from './aside.js';
import { storeErrors, faults } from './errors.js';
import { truncateFile, sizeOf, type FileSystem, type OpenFile, type FileId } from './files.js';
import type { IdIndex } from './ids.js';
import type { TornTail } from './lines.js';
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
  const { file, path, index } = log;
  const { size } = await file.stat({ bigint: true });
  const torn = await scan(file, {
    onRecord: (id, offset) => index.add(id, offset),
    onDamage(damage) {
      throw storeErrors.damaged(path, damage);
    },
    onProgress: (bytes) => onProgress?.(bytes, Number(size)),
  });
  if (torn.bytes.length > 0) await cutTornTail(log, torn);
  return torn.offset;
}

/**
 * Copies a torn tail to a file beside the log, then cuts it off.
 *
 * @throws Error if the file was modified meanwhile. It is not cut then.
 */
async function cutTornTail(
  { fs, file, path, fileId, report }: UnreadLog,
  { offset, bytes }: TornTail,
): Promise<void> {
  const end = offset + bytes.length;
  const copy = await keepAside(fs, path, file, 'torn', [{ start: offset, end }]);
  // A process that has opened a hard link in another folder may have completed its write.
  if (sizeOf(fs, path, fileId) !== end) throw faults.changed();
  await truncateFile(file, offset);
  const length = pluralize(bytes.length, 'byte');
  report(`${path}: moved ${length} of an incomplete write to ${copy}`);
}
