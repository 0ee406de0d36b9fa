import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { constants, statSync, write, type BigIntStats } from 'node:fs';
import * as fs from 'node:fs/promises';
import { createConnection, createServer, type Server } from 'node:net';
import { platform } from 'node:os';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

import { codeOf } from '../system-error.js';
import { faults, toStoreError } from './errors.js';

export type OpenFile = Pick<
  fs.FileHandle,
  'fd' | 'stat' | 'chmod' | 'chown' | 'read' | 'truncate' | 'sync' | 'close'
>;

/** What the log needs of the system: files, sockets, timers and random numbers. Tests simulate all of it. */
export interface System {
  open(path: string, flags: number, mode?: number): Promise<OpenFile>;
  mkdir(path: string): Promise<unknown>;
  realpath(path: string): Promise<string>;
  readdir(path: string): Promise<string[]>;
  chmod(path: string, mode: number): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  unlink(path: string): Promise<void>;
  /** Takes a descriptor, because `FileHandle.write` takes 1.5 times as long. */
  write(descriptor: number, bytes: Buffer): Promise<{ readonly bytesWritten: number }>;
  /** Synchronous: the inode is in memory, and the thread pool would take ten times as long. */
  statSync(path: string, options: { bigint: true; throwIfNoEntry: false }): BigIntStats | undefined;
  /** Whether a write to a file opened with `O_DSYNC` is on the disk when it returns. */
  readonly dsyncIsDurable: boolean;
  /** Binds a Unix socket, and listens on it until that is closed. */
  listen(path: string): Promise<{ close(): void }>;
  /** Rejects if no process listens on a Unix socket. */
  connect(path: string): Promise<void>;
  readonly sleep: (ms: number) => Promise<unknown>;
  /** Starts a timer, which does not keep the process running. `refresh` starts it anew. */
  startTimer(onExpiry: () => void, ms: number): { refresh(): unknown };
  readonly randomBytes: (size: number) => Buffer;
}

export const nodeSystem: System = {
  open: fs.open,
  mkdir: fs.mkdir,
  realpath: fs.realpath,
  readdir: fs.readdir,
  chmod: fs.chmod,
  rename: fs.rename,
  unlink: fs.unlink,
  write: promisify(write),
  statSync,
  // On macOS, O_DSYNC leaves the data in the disk's cache; libuv's fsync uses F_FULLFSYNC.
  dsyncIsDurable: platform() !== 'darwin',
  listen,
  connect,
  sleep,
  startTimer: (onExpiry, ms) => setTimeout(onExpiry, ms).unref(),
  randomBytes,
};

async function listen(path: string): Promise<Server> {
  const server = createServer((socket) => socket.on('error', () => undefined).destroy());
  // Without `exclusive`, the socket of a cluster worker would belong to the primary.
  server.unref().listen({ path, exclusive: true });
  await once(server, 'listening');
  return server;
}

async function connect(path: string): Promise<void> {
  const socket = createConnection(path);
  await once(socket, 'connect').finally(() => socket.destroy());
}

const { O_APPEND, O_CREAT, O_DSYNC, O_EXCL, O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY } = constants;

/** Creates a folder if it is missing, in a parent that exists, and makes its directory entry durable. */
export async function createFolder(system: System, path: string): Promise<void> {
  const parent = dirname(path);
  let isCreated = true;
  try {
    await system.mkdir(path);
  } catch (error) {
    // A file of this name is no folder, which the log that is opened in it reports.
    if (codeOf(error) !== 'EEXIST')
      throw toStoreError(codeOf(error) === 'ENOENT' ? parent : path, error);
    isCreated = false;
  }
  const synced = syncFolder(system, parent);
  // Also if it exists: the process that created it may have been killed before the sync. That may fail for a folder
  // that an operator created, because its parent may not be readable.
  await (isCreated ? synced : synced.catch(() => undefined));
}

/** Opens the file of a log for durable appends. Creates it, mode 0600, if it is missing. */
export function openLogFile(system: System, path: string): Promise<OpenFile> {
  return system.open(path, O_RDWR | O_APPEND | O_CREAT | O_DSYNC, 0o600);
}

/** Opens a file or a folder to read it. */
export function openToRead(system: System, path: string): Promise<OpenFile> {
  // O_NONBLOCK: opening a FIFO that has no writer would block forever.
  return system.open(path, O_RDONLY | O_NONBLOCK);
}

/** @throws Error if the file is not a regular one: only a regular file keeps what is written to it. */
export async function statRegularFile(file: OpenFile): Promise<BigIntStats> {
  const stats = await file.stat({ bigint: true });
  if (!stats.isFile()) throw new Error('it is not a regular file');
  return stats;
}

/** What identifies a file while it is open. Another volume may have a file with the same inode number. */
export type FileId = Readonly<Pick<BigIntStats, 'dev' | 'ino'>>;

/**
 * The size of the file at `path`, in bytes.
 *
 * @throws Error if it is not the given file: that one was moved or replaced, or its volume was.
 */
export function sizeOf(system: System, path: string, { dev, ino }: FileId): number {
  const now = system.statSync(path, { bigint: true, throwIfNoEntry: false });
  if (now?.dev !== dev || now.ino !== ino) throw faults.changed();
  return Number(now.size);
}

/**
 * Creates a file, mode 0600, under a name that is not final. Once `write` has written it durably, it gets the path
 * to which `write` resolves, and with it the place of another file. Resolves to that path.
 */
export async function createFile(
  system: System,
  unfinished: string,
  write: (file: OpenFile) => Promise<string>,
): Promise<string> {
  // A killed process may have left one.
  await removeIfPresent(system, unfinished);
  try {
    // O_EXCL: a user who can write to the folder must not be able to redirect the bytes by a link.
    const file = await system.open(unfinished, O_WRONLY | O_CREAT | O_EXCL | O_DSYNC, 0o600);
    const path = await write(file).finally(() => file.close());
    await system.rename(unfinished, path);
    await syncFolder(system, dirname(path));
    return path;
  } catch (error) {
    await removeIfPresent(system, unfinished);
    throw error;
  }
}

/** Removes a file. If that fails, it is left: nothing depends on it. */
export async function removeIfPresent(system: System, path: string): Promise<void> {
  await system.unlink(path).catch(() => undefined);
}

/** Writes all of `bytes` durably to a file that was opened with `O_DSYNC`. */
export async function writeAll(system: System, file: OpenFile, bytes: Buffer): Promise<void> {
  for (let rest = bytes; rest.length > 0;) {
    const { bytesWritten } = await system.write(file.fd, rest);
    if (bytesWritten === 0) throw new Error('the system wrote 0 bytes');
    rest = rest.subarray(bytesWritten);
  }
  if (!system.dsyncIsDurable) await file.sync();
}

/** Makes the directory entries of a folder durable. */
export async function syncFolder(system: System, path: string): Promise<void> {
  try {
    const folder = await openToRead(system, path);
    await folder.sync().finally(() => folder.close());
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
