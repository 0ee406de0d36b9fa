import { createHash, type Hash } from 'node:crypto';
import { constants, type BigIntStats } from 'node:fs';
import { dirname } from 'node:path';

import type { Report } from '../report.js';
import { codeOf } from '../system-error.js';
import { fileErrors, toStoreError } from './errors.js';
import type { System } from './system.js';

const { O_APPEND, O_CREAT, O_DSYNC, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY } =
  constants;

/**
 * Creates a folder if it is missing, in a parent that exists, and makes its directory entry
 * durable.
 */
export async function createFolder(system: System, path: string): Promise<void> {
  const parent = dirname(path);
  try {
    await system.mkdir(path);
  } catch (error) {
    const code = codeOf(error);
    if (code !== 'EEXIST') throw toStoreError(code === 'ENOENT' ? parent : path, error);
    // A process that created the folder may have been killed before the sync. A sync may fail: an
    // operator may have created the folder in a parent that this process cannot read. If the path
    // is that of a file, opening the log fails.
    return syncFolder(system, parent).catch(() => undefined);
  }
  await syncFolder(system, parent);
}

/** An open file or folder. */
export interface OpenFile {
  readonly descriptor: number;
  stat(): Promise<BigIntStats>;
  /** Reads into a buffer, from a byte offset on. Resolves to the number of bytes read. */
  read(buffer: Buffer, position: number): Promise<number>;
  /** Writes all of `bytes` at the end, durably if the file was opened with `O_DSYNC`. */
  append(bytes: Buffer): Promise<void>;
  /** Cuts the file off at a size, and syncs it. */
  truncate(size: number): Promise<void>;
  /**
   * Makes the content and the size of a file durable, or the entries of a folder. Does nothing if
   * the permission model denies it.
   */
  sync(): Promise<void>;
  /** Closes the file after the pending reads. Later reads reject. Must not be called twice. */
  close(): Promise<void>;
}

async function open(system: System, path: string, flags: number, mode?: number): Promise<OpenFile> {
  const descriptor = await system.open(path, flags, mode);
  const reads = new Set<Promise<unknown>>();
  let isClosed = false;

  async function sync(): Promise<void> {
    await system.fsync(descriptor).catch(ignoreIfDenied);
  }

  return {
    descriptor,
    stat: () => system.fstat(descriptor),
    async read(buffer, position) {
      // The descriptor may be that of another file by now.
      if (isClosed) throw new Error('the file is closed');
      const reading = system
        .read(descriptor, buffer, position)
        .finally(() => reads.delete(reading));
      reads.add(reading);
      return reading;
    },
    async append(bytes) {
      for (let rest = bytes; rest.length > 0;) {
        const written = await system.write(descriptor, rest);
        if (written === 0) throw new Error('the system wrote 0 bytes');
        rest = rest.subarray(written);
      }
      // On macOS, only fsync makes the bytes durable. So an error is thrown if fsync is denied,
      // which `sync` would ignore.
      if (!system.dsyncIsDurable) await system.fsync(descriptor);
    },
    async truncate(size) {
      await system.ftruncate(descriptor, size);
      // Otherwise, a power cut could restore the removed bytes after newer ones.
      await sync();
    },
    sync,
    async close() {
      isClosed = true;
      await Promise.allSettled(reads);
      await system.close(descriptor);
    },
  };
}

/** Opens the file of a log for durable appends. Creates it, mode 0600, if it is missing. */
export function openLogFile(system: System, path: string): Promise<OpenFile> {
  return open(system, path, O_RDWR | O_APPEND | O_CREAT | O_DSYNC, 0o600);
}

/**
 * Opens a file for durable writes from its beginning on. Creates it, mode 0600, if it is missing.
 */
export function openToWrite(system: System, path: string): Promise<OpenFile> {
  // O_NOFOLLOW: a user who can write to the folder must not be able to redirect the bytes with a
  // symbolic link.
  return open(system, path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_DSYNC, 0o600);
}

/** Opens a file or a folder to read it. */
export function openToRead(system: System, path: string): Promise<OpenFile> {
  // O_NONBLOCK: opening a FIFO that has no writer would block forever.
  return open(system, path, O_RDONLY | O_NONBLOCK);
}

/**
 * Resolves to the state of a file, whose `dev` and `ino` are its {@link FileId}.
 *
 * @throws Error if the file is not a regular one: only a regular file keeps what is written to it.
 */
export async function statRegularFile(file: OpenFile): Promise<BigIntStats> {
  const stats = await file.stat();
  if (!stats.isFile()) throw new Error('it is not a regular file');
  return stats;
}

/**
 * Identifies a file while it is open. `ino` alone would not: a file on another volume may have the
 * same inode number.
 */
export type FileId = Readonly<Pick<BigIntStats, 'dev' | 'ino'>>;

/** The open and locked file of a log, and what is needed to use it. */
export interface LockedLog {
  readonly system: System;
  readonly file: OpenFile;
  /** The path of the file, absolute and without symbolic links. */
  readonly path: string;
  /** `path`, and also the path that was given if that leads through a symbolic link. */
  readonly paths: readonly string[];
  /** Shows whether the file at a path is still this one. */
  readonly fileId: FileId;
  /** Never throws. Its rate is not limited. */
  readonly report: Report;
}

/**
 * Returns the size of the file at `path`, in bytes.
 *
 * @throws Error if `path` does not lead to the given file: the file, a folder above it, a symbolic
 * link on the path, or the volume was moved, replaced or removed.
 */
export function sizeOfSameFile(system: System, path: string, { dev, ino }: FileId): number {
  const now = statAt(system, path);
  if (now?.dev !== dev || now.ino !== ino) throw fileErrors.changed();
  return Number(now.size);
}

/** The state of the file at `path`, or `undefined` if there is none. */
function statAt(system: System, path: string): BigIntStats | undefined {
  try {
    return system.statSync(path);
  } catch (error) {
    // ENOTDIR: a file has replaced a folder of the path. ELOOP: a symbolic link leads to itself.
    if (['ENOTDIR', 'ELOOP'].includes(String(codeOf(error)))) return undefined;
    throw error;
  }
}

/**
 * Creates a file, mode 0600, under the name `unfinished`. `write` writes its content durably. The
 * file is then renamed to `path`, where it replaces any other file. If `write` resolves to
 * `undefined`, the file is removed instead. Resolves to what `write` does.
 */
export async function createFile<Result>(
  system: System,
  { unfinished, path }: { readonly unfinished: string; readonly path: string },
  write: (file: OpenFile) => Promise<Result>,
): Promise<Result> {
  // A killed process may have left a file of this name.
  await tryToRemove(system, unfinished);
  try {
    // O_EXCL, for the same reason as O_NOFOLLOW above.
    const file = await open(system, unfinished, O_WRONLY | O_CREAT | O_EXCL | O_DSYNC, 0o600);
    const result = await write(file).finally(() => file.close());
    if (result === undefined) {
      await tryToRemove(system, unfinished);
      return result;
    }
    await system.rename(unfinished, path);
    await syncFolder(system, dirname(path));
    return result;
  } catch (error) {
    await tryToRemove(system, unfinished);
    throw error;
  }
}

/** Copies torn bytes of the log at `path` to a file beside it. Resolves to the path of the copy. */
export function keepTorn(system: System, path: string, torn: Buffer): Promise<string> {
  const copy = nameAfterContent(`${path}.torn`, createHash('sha256').update(torn));
  return createFile(system, { unfinished: `${path}.torn.new`, path: copy }, async (file) => {
    await file.append(torn);
    return copy;
  });
}

/** Gives a file a second name, durably. A file that already has the name is removed. */
export async function linkFile(system: System, path: string, name: string): Promise<void> {
  await tryToRemove(system, name);
  await system.link(path, name);
  await syncFolder(system, dirname(name));
}

/** A path with a hash of a file's content, so that no file with other bytes is replaced. */
export function nameAfterContent(path: string, hash: Hash): string {
  return `${path}-${hash.digest('hex').slice(0, 16)}`;
}

/** Removes a file, and ignores any failure: nothing depends on the removal. */
export async function tryToRemove(system: System, path: string): Promise<void> {
  await system.unlink(path).catch(() => undefined);
}

/**
 * Makes the directory entries of a folder durable. Does nothing if the permission model denies it.
 */
export async function syncFolder(system: System, path: string): Promise<void> {
  try {
    const folder = await openToRead(system, path);
    await folder.sync().finally(() => folder.close());
  } catch (error) {
    // Opening the folder may be denied. On ext4, XFS and Btrfs, the first durable write to a new
    // file makes its entry durable, too.
    ignoreIfDenied(error);
  }
}

/** The permission model of Node 24 and 26 forbids fsync. */
function ignoreIfDenied(error: unknown): void {
  if (codeOf(error) !== 'ERR_ACCESS_DENIED') throw error;
}
