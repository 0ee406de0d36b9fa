import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import * as fs from 'node:fs';
import { createConnection, createServer, type Server } from 'node:net';
import { platform } from 'node:os';
// Not the global, which fake timers of test runners replace.
import { setTimeout } from 'node:timers';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

/** What the log needs of the system: files, sockets, timers and random numbers. Tests simulate all of it. */
export interface System {
  /*
   * Files have descriptors, not a FileHandle of `node:fs/promises`: that of Yarn's Plug'n'Play can do little, and that
   * of Node takes 1.5 times as long to write.
   */
  open(path: string, flags: number, mode?: number): Promise<number>;
  fstat(descriptor: number): Promise<fs.BigIntStats>;
  fchmod(descriptor: number, mode: number): Promise<void>;
  fchown(descriptor: number, uid: number, gid: number): Promise<void>;
  read(
    descriptor: number,
    buffer: Buffer,
    position: number,
  ): Promise<{ readonly bytesRead: number }>;
  write(descriptor: number, bytes: Buffer): Promise<{ readonly bytesWritten: number }>;
  ftruncate(descriptor: number, size: number): Promise<void>;
  fsync(descriptor: number): Promise<void>;
  close(descriptor: number): Promise<void>;
  mkdir(path: string): Promise<unknown>;
  realpath(path: string): Promise<string>;
  readdir(path: string): Promise<string[]>;
  chmod(path: string, mode: number): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  unlink(path: string): Promise<void>;
  /** Synchronous: the inode is in memory, and the thread pool would take ten times as long. */
  statSync(path: string): fs.BigIntStats | undefined;
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

const fstat = promisify(fs.fstat);
const read = promisify(fs.read);

export const nodeSystem: System = {
  open: promisify(fs.open),
  fstat: (descriptor) => fstat(descriptor, { bigint: true }),
  fchmod: promisify(fs.fchmod),
  fchown: promisify(fs.fchown),
  read: (descriptor, buffer, position) => read(descriptor, buffer, 0, buffer.length, position),
  write: promisify(fs.write),
  ftruncate: promisify(fs.ftruncate),
  fsync: promisify(fs.fsync),
  close: promisify(fs.close),
  mkdir: fs.promises.mkdir,
  realpath: fs.promises.realpath,
  readdir: fs.promises.readdir,
  chmod: fs.promises.chmod,
  rename: fs.promises.rename,
  unlink: fs.promises.unlink,
  statSync: (path) => fs.statSync(path, { bigint: true, throwIfNoEntry: false }),
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
