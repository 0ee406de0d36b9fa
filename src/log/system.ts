import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import * as fs from 'node:fs';
import { createConnection, createServer } from 'node:net';
import { platform } from 'node:os';
// Not the global, which fake timers of test runners replace.
import { setTimeout } from 'node:timers';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

/*
 * `promisify(fs.read)` resolves to an object, because of a hidden property of `fs.read`. An agent
 * that wraps `fs.read`, as New Relic's does, loses this property, and the promise then resolves to
 * a number. So functions that have such a property (`read`, `write`) are called with a callback.
 */
const open = promisify(fs.open);
const fstat = promisify(fs.fstat);

/** A promise for the number of bytes that an operation passes to its callback. */
function bytesOf(
  operate: (callback: (error: Error | null, bytes: number) => void) => void,
): Promise<number> {
  return new Promise((resolve, reject) => {
    operate((error, bytes) => {
      if (error) reject(error);
      else resolve(bytes);
    });
  });
}

/**
 * What the log needs of the system: files, sockets, timers, and the random bytes in names. Tests
 * simulate all of it.
 */
export type System = typeof nodeSystem;

export const nodeSystem = {
  /*
   * Files have descriptors, not a FileHandle of `node:fs/promises`: that of Yarn's Plug'n'Play can
   * do little, and that of Node takes 1.5 times as long to write.
   */
  open: (path: string, flags: number, mode?: number) => open(path, flags, mode),
  fstat: (descriptor: number) => fstat(descriptor, { bigint: true }),
  fchmod: promisify(fs.fchmod),
  fchown: promisify(fs.fchown),
  /** Resolves to the number of bytes read. */
  read: (descriptor: number, buffer: Buffer, position: number) =>
    bytesOf((callback) => fs.read(descriptor, buffer, 0, buffer.length, position, callback)),
  /** Resolves to the number of bytes written. */
  write: (descriptor: number, bytes: Buffer) =>
    bytesOf((callback) => fs.write(descriptor, bytes, callback)),
  ftruncate: promisify(fs.ftruncate),
  fsync: promisify(fs.fsync),
  close: promisify(fs.close),
  mkdir: (path: string) => fs.promises.mkdir(path),
  realpath: (path: string) => fs.promises.realpath(path),
  readdir: (path: string) => fs.promises.readdir(path),
  chmod: (path: string, mode: number) => fs.promises.chmod(path, mode),
  rename: (from: string, to: string) => fs.promises.rename(from, to),
  link: (existing: string, path: string) => fs.promises.link(existing, path),
  unlink: (path: string) => fs.promises.unlink(path),
  /** Synchronous: the inode is in memory, and the thread pool would take ten times as long. */
  statSync: (path: string) => fs.statSync(path, { bigint: true, throwIfNoEntry: false }),
  /**
   * Whether a write to a file opened with `O_DSYNC` is on the disk when it returns. On macOS, it
   * may be in the disk's cache; libuv's fsync uses F_FULLFSYNC.
   */
  dsyncIsDurable: platform() !== 'darwin',
  /** Binds a Unix socket, and listens on it until the returned object is closed. */
  async listen(path: string): Promise<{ close(): void }> {
    const server = createServer((socket) => socket.on('error', () => undefined).destroy());
    // Without `exclusive`, the socket of a cluster worker would belong to the primary.
    server.unref().listen({ path, exclusive: true });
    await once(server, 'listening');
    return server;
  },
  /** Rejects if no process listens on a Unix socket. */
  async connect(path: string): Promise<void> {
    const socket = createConnection(path);
    await once(socket, 'connect').finally(() => socket.destroy());
  },
  sleep: (ms: number): Promise<unknown> => sleep(ms),
  /** Starts a timer, which does not keep the process running. `refresh` starts it anew. */
  startTimer: (onExpiry: () => void, ms: number): { refresh(): unknown } =>
    setTimeout(onExpiry, ms).unref(),
  randomBytes: (size: number) => randomBytes(size),
};
