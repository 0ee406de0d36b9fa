import type { BigIntStats } from 'node:fs';

import { toStoreError, type Damage } from './errors.js';
import { openToRead, statRegularFile, type FileSystem, type OpenFile } from './files.js';
import { createIdIndex } from './ids.js';
import { createSecondReader } from './reread.js';
import { scan } from './scan.js';

/** What was found in a log. */
export interface Verification {
  readonly plants: number;
  readonly damagedLines: number;
  /** The size of the file. */
  readonly bytes: number;
  /** The bytes after the last newline: of a write that is in progress, or was never completed. */
  readonly tornBytes: number;
}

export interface VerifyOptions {
  /** Called with each damaged line. If it returns a promise, the next line is not read before it is resolved. */
  readonly onDamage: (damage: Damage) => unknown;
  readonly onProgress: (bytes: number, totalBytes: number) => void;
}

/** Checks every line of a log and changes nothing. A server may have the log open. */
export async function verifyLog(
  fs: FileSystem,
  path: string,
  options: VerifyOptions,
): Promise<Verification> {
  return withFile(fs, path, (file, { size }) => checkLines(file, Number(size), options));
}

/** Opens a log to read it, and closes it after the work. */
export async function withFile<Result>(
  fs: FileSystem,
  path: string,
  work: (file: OpenFile, stats: BigIntStats) => Promise<Result>,
): Promise<Result> {
  try {
    const file = await openToRead(fs, path);
    try {
      return await work(file, await statRegularFile(file));
    } finally {
      await file.close();
    }
  } catch (error) {
    throw toStoreError(path, error);
  }
}

/** Checks every line of a file whose size was `size`. */
export async function checkLines(
  file: OpenFile,
  size: number,
  { onDamage, onProgress }: VerifyOptions,
): Promise<Verification> {
  const index = createIdIndex();
  const secondReader = createSecondReader(file);
  let damagedLines = 0;
  const torn = await scan(file, {
    onRecord: (id, offset) => index.add(id, offset),
    async onDamage(damage, line) {
      if (!(await secondReader.confirms(damage, line))) return;
      damagedLines++;
      await onDamage(damage);
    },
    onProgress(bytes) {
      secondReader.forget();
      // A server may append to the log meanwhile.
      onProgress(Math.min(bytes, size), size);
    },
  });
  const tornBytes = torn.bytes.length;
  return { plants: index.size, damagedLines, bytes: torn.offset + tornBytes, tornBytes };
}
