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

import { codeOf } from './system-error.js';

export type OpenFile = Pick<
  FileHandle,
  'fd' | 'stat' | 'chmod' | 'chown' | 'read' | 'truncate' | 'sync' | 'close'
>;

/** Almost all file operations go through this interface, so that tests can make each of them fail. */
export interface FileSystem {
  open(path: string, flags: number, mode?: number): Promise<OpenFile>;
  mkdir(path: string): Promise<void>;
  realpath(path: string): Promise<string>;
  readdir(path: string): Promise<string[]>;
  chmod(path: string, mode: number): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  unlink(path: string): Promise<void>;
  /** Takes a descriptor, because `FileHandle.write` takes 1.5 times as long. */
  write(descriptor: number, bytes: Buffer): Promise<{ readonly bytesWritten: number }>;
  /** Synchronous: the inode is in memory, and the thread pool would take ten times as long. */
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
  // On macOS, O_DSYNC leaves the data in the disk's cache; libuv's fsync uses F_FULLFSYNC.
  dsyncIsDurable: platform() !== 'darwin',
};

const { O_CREAT, O_DIRECTORY, O_DSYNC, O_EXCL, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;

/**
 * Creates a folder and its ancestors if they are missing. The directory entry of each one is
 * durable before anything is created in it.
 */
export async function createFolder(fs: FileSystem, path: string): Promise<void> {
  const parent = dirname(path);
  let created = false;
  if (await isMissing(fs, path)) {
    await createFolder(fs, parent);
    created = await makeFolder(fs, path);
  }
  const synced = syncFolder(fs, parent);
  // The parent of an existing folder is synced as well: the process that created the folder may have
  // been killed before it synced the parent. That may fail for a folder that an operator created, whose
  // parent may not be readable.
  await (created ? synced : synced.catch(() => undefined));
}

/**
 * Creates a folder. Resolves to false if it exists by now. Not recursive: below /proc, the recursive
 * mkdir of Node 20 to 26 never returns.
 */
async function makeFolder(fs: FileSystem, path: string): Promise<boolean> {
  try {
    await fs.mkdir(path);
    return true;
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
    return false;
  }
}

/** Not synchronous: on a file system that hangs, that would block the main thread. */
async function isMissing(fs: FileSystem, path: string): Promise<boolean> {
  try {
    await fs.realpath(path);
    return false;
  } catch (error) {
    return codeOf(error) === 'ENOENT';
  }
}

/** Opens a file to read it. */
export function openToRead(fs: FileSystem, path: string): Promise<OpenFile> {
  // O_NONBLOCK: opening a FIFO that has no writer would block forever.
  return fs.open(path, O_RDONLY | O_NONBLOCK);
}

/** @throws Error if the file is not a regular one: only a regular file keeps what is written to it. */
export async function statRegularFile(file: OpenFile): Promise<BigIntStats> {
  const stats = await file.stat({ bigint: true });
  if (!stats.isFile()) throw new Error('it is not a regular file');
  return stats;
}

/** Writes a new file durably, in place of the one that has this path. */
export async function writeFile(fs: FileSystem, path: string, bytes: Buffer): Promise<void> {
  await removeIfPresent(fs, path);
  // O_EXCL: a user who can write to the folder must not be able to redirect the bytes by a link.
  const file = await fs.open(path, O_WRONLY | O_CREAT | O_EXCL | O_DSYNC, 0o600);
  try {
    await writeAll(fs, file, bytes);
  } finally {
    await file.close();
  }
  await syncFolder(fs, dirname(path));
}

export async function removeIfPresent(fs: FileSystem, path: string): Promise<void> {
  await fs.unlink(path).catch(() => undefined);
}

/** Writes all of `bytes` durably to a file that was opened with `O_DSYNC`. */
export async function writeAll(fs: FileSystem, file: OpenFile, bytes: Buffer): Promise<void> {
  for (let rest = bytes; rest.length > 0;) {
    const { bytesWritten } = await fs.write(file.fd, rest);
    if (bytesWritten === 0) throw new Error('the system wrote 0 bytes');
    rest = rest.subarray(bytesWritten);
  }
  if (!fs.dsyncIsDurable) await file.sync();
}

export function openFolder(fs: FileSystem, path: string): Promise<OpenFile> {
  return fs.open(path, O_RDONLY | O_DIRECTORY);
}

/** Makes the directory entries of a folder durable. */
export async function syncFolder(fs: FileSystem, path: string): Promise<void> {
  try {
    const folder = await openFolder(fs, path);
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  } catch (error) {
    // On ext4, XFS and Btrfs, the first durable write to a new file makes its entry durable, too.
    ignoreIfDenied(error);
  }
}

/** Makes the content and the size of a file durable. */
export async function syncFile(file: OpenFile): Promise<void> {
  await file.sync().catch(ignoreIfDenied);
}

/** Truncates a file durably: otherwise a power cut could bring old bytes back after new ones. */
export async function truncateFile(file: OpenFile, size: number): Promise<void> {
  await file.truncate(size);
  await syncFile(file);
}

/** The permission model of Node 26 forbids fsync. */
function ignoreIfDenied(error: unknown): void {
  if (codeOf(error) !== 'ERR_ACCESS_DENIED') throw error;
}
