import { crc32 } from 'node:zlib';

import { pluralize, type Report } from '../report.js';
import { PlantStoreError } from '../store.js';
import { cutFile, writeFile, type FileSystem, type LogFile } from './file.js';
import type { IdIndex } from './id-index.js';
import { HIGH, LOW } from './record.js';
import { lineAt, sameId, scan, type Damage, type TornTail } from './scan.js';

/** A log that is locked, and that no plant has been added to since it was opened. */
export interface UnreadLog {
  readonly fs: FileSystem;
  readonly file: LogFile;
  readonly path: string;
  readonly report: Report;
  /** Receives the id of each plant, and the byte at which its line starts. */
  readonly index: IdIndex;
}

/**
 * Checks every line of a log, and cuts off what follows the last newline: it was never acknowledged.
 * Resolves to where the last line ends, in bytes.
 *
 * @throws PlantStoreError `damaged` if a line is not what was written. Then nothing is changed.
 */
export async function recover(
  log: UnreadLog,
  onProgress?: (bytes: number, totalBytes: number) => void,
): Promise<number> {
  const torn = await readLines(log, onProgress);
  if (torn.bytes.length > 0) await cutTornTail(log, torn);
  return torn.offset;
}

/** Checks every line and puts its id into the index. Resolves to what follows the last one. */
async function readLines(
  { fs, file, path, index }: UnreadLog,
  onProgress?: (bytes: number, totalBytes: number) => void,
): Promise<TornTail> {
  const totalBytes = Number(fs.statSync(path, { bigint: true }).size);
  const torn = await scan(file, {
    onRecord(id, offset) {
      index.load(id[LOW] as number, id[HIGH] as number, offset);
      return undefined;
    },
    onDamage(damage) {
      throw damagedFailure(path, damage);
    },
    onProgress: (bytes) => onProgress?.(bytes, totalBytes),
  });
  const duplicate = await index.settle();
  if (!duplicate) return torn;
  const { offset, earlier } = duplicate;
  throw damagedFailure(path, { line: await lineAt(file, offset), offset, reason: sameId(earlier) });
}

/** The error for a line that is not what was written. */
export function damagedFailure(
  path: string,
  { line, offset, reason }: Omit<Damage, 'length'>,
): PlantStoreError {
  return new PlantStoreError('damaged', `${path}: line ${line}, at byte ${offset}: ${reason}`);
}

/** Copies a torn tail to a file named after its offset and its checksum, then cuts it off. */
async function cutTornTail(
  { fs, file, path, report }: UnreadLog,
  { offset, bytes }: TornTail,
): Promise<void> {
  const copy = `${path}.torn-${offset}-${crc32(bytes).toString(16)}`;
  await writeFile(fs, copy, bytes);
  await cutFile(file, offset);
  const length = pluralize(bytes.length, 'byte');
  report(`${path}: moved ${length} of a write that was never finished to ${copy}`);
}
