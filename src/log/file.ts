import { constants, statSync, write, type BigIntStats } from 'node:fs';
import {
  chmod,
  mkdir,
  open,
  readdir,
  realpath,
  rename,
  unlink,
  type FileHandle,
} from 'node:fs/promises';
import { platform } from 'node:os';
import { dirname } from 'node:path';
import { promisify } from 'node:util';

import { PlantStoreError } from '../store.js';
import { codeOf, reasonOf } from '../system-error.js';

/** An open file. */
export type LogFile = Pick<
  FileHandle,
  'fd' | 'stat' | 'chmod' | 'chown' | 'read' | 'truncate' | 'sync' | 'close'
>;

/** Every operation of the log on files goes through this seam, so that a test can fail any one. */
export interface FileSystem {
  open(path: string, flags: number, mode?: number): Promise<LogFile>;
  mkdir(path: string, options: { recursive: true }): Promise<string | undefined>;
  realpath(path: string): Promise<string>;
  readdir(path: string): Promise<string[]>;
  chmod(path: string, mode: number): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  unlink(path: string): Promise<void>;
  /** Through a descriptor: that of a FileHandle costs half as much again. */
  write(descriptor: number, bytes: Buffer): Promise<{ readonly bytesWritten: number }>;
  /** Synchronous: the inode of an open file is in memory, and a thread would cost ten times more. */
  statSync(path: string, options: { bigint: true }): BigIntStats;
  /** Whether a write to a file opened with `O_DSYNC` is on the disk when it returns. */
  readonly dsyncIsDurable: boolean;
}

export const nodeFileSystem: FileSystem = {
  open,
  mkdir,
  realpath,
  readdir,
  chmod,
  rename,
  unlink,
  write: promisify(write),
  statSync,
  // macOS leaves the data in the disk's cache; there, fsync of libuv is an F_FULLFSYNC.
  dsyncIsDurable: platform() !== 'darwin',
};

const { O_APPEND, O_CREAT, O_DIRECTORY, O_DSYNC, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY } = constants;

/**
 * Creates a folder and its ancestors, if they are missing. The entry of each is durable before
 * anything is created in it.
 */
export async function makeFolder(fs: FileSystem, path: string): Promise<void> {
  const parent = dirname(path);
  if (isMissing(fs, path)) await makeFolder(fs, parent);
  const created = await fs.mkdir(path, { recursive: true });
  const synced = syncFolder(fs, parent);
  // A folder that exists is synced again, because a process may have been killed before it did so.
  // Its parent may be one that this process must not read, if an operator has created it.
  await (created === undefined ? synced.catch(() => undefined) : synced);
}

function isMissing(fs: FileSystem, path: string): boolean {
  try {
    fs.statSync(path, { bigint: true });
    return false;
  } catch (error) {
    return codeOf(error) === 'ENOENT';
  }
}

/** Opens a file for durable appends; makes it, mode 0600, where it is missing. */
export function openLogFile(fs: FileSystem, path: string): Promise<LogFile> {
  return fs.open(path, O_RDWR | O_APPEND | O_CREAT | O_DSYNC, 0o600);
}

/** What the system knows of a file. Only a regular one keeps what is written to it. */
export async function statOf(file: LogFile): Promise<BigIntStats> {
  const stats = await file.stat({ bigint: true });
  if (!stats.isFile()) throw new Error('it is not a regular file');
  return stats;
}

/** Writes a new file, or the same again, and waits until it is on the disk. */
export async function writeFile(fs: FileSystem, path: string, bytes: Buffer): Promise<void> {
  const file = await fs.open(path, O_WRONLY | O_CREAT | O_TRUNC | O_DSYNC, 0o600);
  try {
    await writeAll(fs, file, bytes);
  } finally {
    await file.close();
  }
  await syncFolder(fs, dirname(path));
}

/** Writes to a file opened with `O_DSYNC`, and waits until all is on the disk. */
export async function writeAll(fs: FileSystem, file: LogFile, bytes: Buffer): Promise<void> {
  for (let rest = bytes; rest.length > 0;) {
    const { bytesWritten } = await fs.write(file.fd, rest);
    if (bytesWritten === 0) throw new Error('the file takes no more bytes');
    rest = rest.subarray(bytesWritten);
  }
  if (!fs.dsyncIsDurable) await file.sync();
}

export function openFolder(fs: FileSystem, path: string): Promise<LogFile> {
  return fs.open(path, O_RDONLY | O_DIRECTORY);
}

/** Makes the entries of a folder durable. */
export async function syncFolder(fs: FileSystem, path: string): Promise<void> {
  try {
    const folder = await openFolder(fs, path);
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  } catch (error) {
    // On ext4, XFS and Btrfs the first durable write to a new file makes its entry durable as well.
    ignoreIfDenied(error);
  }
}

/** Makes the content and the size of a file durable. */
export async function syncFile(file: LogFile): Promise<void> {
  await file.sync().catch(ignoreIfDenied);
}

/** Cuts a file off durably: otherwise a power cut could leave the old bytes behind new ones. */
export async function cutFile(file: LogFile, size: number): Promise<void> {
  await file.truncate(size);
  await syncFile(file);
}

/** Node 26's permission model forbids fsync. */
function ignoreIfDenied(error: unknown): void {
  if (codeOf(error) !== 'ERR_ACCESS_DENIED') throw error;
}

/** What is thrown for an error that a file gave. */
export function failureOf(path: string, error: unknown): PlantStoreError {
  if (error instanceof PlantStoreError) return error;
  return new PlantStoreError('unavailable', `${path}: ${reasonOf(error)}`, { cause: error });
}

export function lockedFailure(path: string): PlantStoreError {
  const reason =
    'another process has the log open; one log serves one process, plant-store/postgres serves several';
  return new PlantStoreError('locked', `${path}: ${reason}`);
}

/** Why a log is given up that does not hold what was written to it, or is not where it was. */
export const CHANGED = 'the file was changed by somebody else';
