import { constants } from 'node:fs';
import { basename, dirname } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';

import { nodeSystem, type OpenFile, type System } from '../../dist/log/files.js';
import { systemError } from '../log/support.js';
import { fileIn, folderIn, ROOT, SECTOR_BYTES, type Effect, type Inode } from './disk.js';
import { flushed, withEffect, withFailed, withNewInode, type World } from './world.js';

/*
 * The lock is explored on its own. Here, no other process has the log open, and the sockets of this one are in no
 * folder.
 */

/** A simulated file system, as one process sees it. */
export interface Machine {
  readonly fs: System;
  /** What the file system holds now. */
  readonly world: World;
  /** How many more bytes of data fit on the disk. */
  room: number;
  /** Which of the next writes fails with EIO: 1 is the next one, 0 none. */
  failingWrite: number;
  /** Whether operations take so long that they hang. */
  hangs: boolean;
  /** What the files in a folder hold, by their names. */
  filesIn(path: string): Map<string, Buffer>;
  inoOf(path: string): number | undefined;
}

export interface MachineOptions {
  /** Whether a write to a file opened with `O_DSYNC` is durable when it returns. */
  readonly dsyncIsDurable?: boolean;
  /** Called during each operation that changes something or makes it durable. */
  readonly onOperation?: (name: string, inFlight?: Effect) => Promise<void>;
}

interface Descriptor {
  readonly ino: number;
  readonly flags: number;
}

const { O_CREAT, O_DSYNC, O_EXCL } = constants;
const { randomBytes } = nodeSystem;

function isSocket(path: string): boolean {
  return basename(path).startsWith('.plant-store-');
}

/** A folder and those that it is in, the outermost first. */
function withAncestors(path: string): string[] {
  const parent = dirname(path);
  return parent === path ? [] : [...withAncestors(parent), path];
}

export function createMachine(start: World, options: MachineOptions = {}): Machine {
  const { dsyncIsDurable = true, onOperation } = options;
  const openFiles: Descriptor[] = [];
  const timers = new Set<() => void>();
  let world = start;

  /** An effect is visible at once. If the operation makes it durable, it is so when that returns. */
  async function change(name: string, effect: Effect): Promise<void> {
    world = withEffect(world, effect);
    await takeTime();
    await onOperation?.(name, effect);
  }

  /** If the operation hangs, all timers expire. It is in progress until then, and may crash afterwards. */
  async function takeTime(): Promise<void> {
    if (!machine.hangs) return;
    await nextTurn();
    const expired = [...timers];
    timers.clear();
    for (const onExpiry of expired) onExpiry();
    await nextTurn();
  }

  async function sync(ino: number): Promise<void> {
    await takeTime();
    await onOperation?.('sync');
    world = flushed(world, ino);
  }

  function inoOf(path: string): number | undefined {
    let ino: number | undefined = ROOT;
    for (const name of path.split('/').filter(Boolean)) {
      const folder: Inode | undefined = ino === undefined ? undefined : world.visible.get(ino);
      ino = folder?.kind === 'folder' ? folder.entries.get(name) : undefined;
    }
    return ino;
  }

  function find(path: string, syscall: string): number {
    const ino = inoOf(path);
    if (ino === undefined) throw systemError('ENOENT', syscall);
    return ino;
  }

  async function create(path: string, inode: Inode, syscall: string): Promise<number> {
    const folder = find(dirname(path), syscall);
    if (inoOf(path) !== undefined) throw systemError('EEXIST', syscall);
    const created = withNewInode(world, inode);
    world = created.world;
    const changes = [[basename(path), created.ino]] as const;
    await change(`${syscall} ${basename(path)}`, { kind: 'entries', ino: folder, changes });
    return created.ino;
  }

  async function rename(from: string, to: string): Promise<void> {
    if (isSocket(from)) return;
    const changes = [
      [basename(from), undefined],
      [basename(to), find(from, 'rename')],
    ] as const;
    const ino = find(dirname(to), 'rename');
    await change(`rename to ${basename(to)}`, { kind: 'entries', ino, changes });
  }

  async function unlink(path: string): Promise<void> {
    if (isSocket(path)) return;
    find(path, 'unlink');
    const changes = [[basename(path), undefined]] as const;
    const ino = find(dirname(path), 'unlink');
    await change(`unlink ${basename(path)}`, { kind: 'entries', ino, changes });
  }

  async function open(path: string, flags: number): Promise<OpenFile> {
    let ino = inoOf(path);
    if (ino !== undefined && flags & O_EXCL) throw systemError('EEXIST', 'open');
    if (ino === undefined && flags & O_CREAT)
      ino = await create(path, { kind: 'file', content: Buffer.alloc(0) }, 'open');
    return handleOf({ ino: ino ?? find(path, 'open'), flags });
  }

  async function truncate(ino: number, size: number): Promise<void> {
    const before = fileIn(world.visible, ino).length;
    machine.room += before - size;
    if (size < before) await change(`truncate to ${size}`, { kind: 'truncate', ino, size });
  }

  /** Appends to a file: the log never writes anywhere else. */
  async function write(fd: number, given: Buffer): Promise<{ readonly bytesWritten: number }> {
    const { ino, flags } = openFiles[fd] as Descriptor;
    if (machine.room === 0) throw systemError('ENOSPC', 'write');
    // A copy, because the caller may use its buffer again.
    const bytes = Buffer.from(given.subarray(0, machine.room));
    machine.room -= bytes.length;
    const before = fileIn(world.visible, ino);
    const offset = before.length;
    const sectors = Buffer.concat([before.subarray(offset - (offset % SECTOR_BYTES)), bytes]);
    const fails = --machine.failingWrite === 0;
    const effect = { kind: 'write', ino, offset, bytes, sectors, failed: false } as const;
    await change(`write ${bytes.length} bytes`, effect);
    if (fails) {
      world = withFailed(world, effect);
      throw systemError('EIO', 'write');
    }
    if (dsyncIsDurable && flags & O_DSYNC) world = flushed(world, ino, effect);
    return { bytesWritten: bytes.length };
  }

  function statOf(ino: number, options?: { bigint: boolean }): unknown {
    const inode = world.visible.get(ino);
    const isFile = (): boolean => inode?.kind === 'file';
    const size = inode?.kind === 'file' ? inode.content.length : 0;
    if (options?.bigint) return { dev: 1n, ino: BigInt(ino), size: BigInt(size), isFile };
    return { ino, size, isFile, mode: 0o600, uid: 0, gid: 0 };
  }

  function handleOf(file: Descriptor): OpenFile {
    const { ino } = file;
    const handle = {
      fd: openFiles.push(file) - 1,
      stat: async (options?: { bigint: boolean }) => statOf(ino, options),
      chmod: async () => undefined,
      chown: async () => undefined,
      async read(buffer: Buffer, at: number, length: number, position: number) {
        await takeTime();
        const content = fileIn(world.visible, ino);
        return { buffer, bytesRead: content.copy(buffer, at, position, position + length) };
      },
      truncate: (size: number) => truncate(ino, size),
      sync: () => sync(ino),
      close: async () => undefined,
    };
    return handle as unknown as OpenFile;
  }

  const fs = {
    open,
    async mkdir(path: string) {
      let first: string | undefined;
      for (const folder of withAncestors(path)) {
        if (inoOf(folder) !== undefined) continue;
        await create(folder, { kind: 'folder', entries: new Map() }, 'mkdir');
        first ??= folder;
      }
      return first;
    },
    async realpath(path: string) {
      find(path, 'realpath');
      return path;
    },
    readdir: async () => [],
    rename,
    unlink,
    chmod: async () => undefined,
    write,
    statSync(path: string) {
      const ino = inoOf(path);
      return ino === undefined ? undefined : statOf(ino, { bigint: true });
    },
    listen: async () => ({ close: () => undefined }),
    startTimer(onExpiry: () => void) {
      const refresh = () => timers.add(onExpiry);
      refresh();
      return { refresh };
    },
    randomBytes,
    dsyncIsDurable,
  };

  const machine: Machine = {
    fs: fs as unknown as System,
    get world() {
      return world;
    },
    room: Infinity,
    failingWrite: 0,
    hangs: false,
    filesIn(path) {
      const files = new Map<string, Buffer>();
      const ino = inoOf(path);
      if (ino === undefined) return files;
      for (const [name, target] of folderIn(world.visible, ino))
        files.set(name, fileIn(world.visible, target));
      return files;
    },
    inoOf,
  };
  return machine;
}
