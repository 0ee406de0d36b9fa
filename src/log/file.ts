import { constants, type BigIntStats } from 'node:fs';

import type { FileSystem, OpenFile } from '../files.js';
import { faults } from './errors.js';

const { O_APPEND, O_CREAT, O_DSYNC, O_RDWR } = constants;

/** Opens the file of a log for durable appends. Creates it, mode 0600, if it is missing. */
export function openLogFile(fs: FileSystem, path: string): Promise<OpenFile> {
  return fs.open(path, O_RDWR | O_APPEND | O_CREAT | O_DSYNC, 0o600);
}

/** What identifies a file while it is open. Another volume may have a file with the same inode number. */
export type FileId = Readonly<Pick<BigIntStats, 'dev' | 'ino'>>;

/**
 * The size of the file at `path`, in bytes.
 *
 * @throws Error if it is not the given file: that one was replaced, or its volume was.
 */
export function sizeOf(fs: FileSystem, path: string, { dev, ino }: FileId): number {
  const now = fs.statSync(path, { bigint: true });
  if (now.dev !== dev || now.ino !== ino) throw faults.changed();
  return Number(now.size);
}
