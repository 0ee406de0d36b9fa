import { constants } from 'node:fs';
import { basename, dirname } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';

import { nodeSystem, type System } from '../../dist/log/system.js';
import { systemError } from '../log/support.js';
import { fileIn, folderIn, ROOT, type Effect, type EntryChange, type Inode } from './disk.js';
import { flushed, withEffect, withFailed, withNewInode, type World } from './world.js';

/*
 * `lock.ts` explores the lock. Here, no other process has the log open, and the sockets of the lock
 * are in no folder.
 */

/** A simulated file system, as one process sees it. */
export interface Machine {
  readonly fs: System;
  /** The current content of the file system. */
  readonly world: World;
  /** How many more bytes of data fit on the disk. */
  room: number;
  /** Whether the next write fails with EIO. */
  failsToWrite: boolean;
  /** Whether operations take so long that they hang. */
  hangs: boolean;
  /** Whether the permission model denies `fsync`. */
  deniesSync: boolean;
  /** The contents of the files in a folder, by name, in Latin-1. */
  filesIn(path: string): Map<string, string>;
  inoOf(path: string): number | undefined;
}

export interface MachineOptions {
  /** Whether a write to a file opened with `O_DSYNC` is durable when it returns. */
  readonly dsyncIsDurable: boolean;
  /** Called during each operation that changes something or makes it durable. */
  readonly onOperation: (name: string, inFlight?: Effect) => Promise<void>;
}

const { O_CREAT, O_DSYNC, O_EXCL } = constants;
const { randomBytes } = nodeSystem;

export function createMachine(
  start: World,
  { dsyncIsDurable, onOperation }: MachineOptions,
): Machine {
  /** The open files, by descriptor. */
  const openFiles: { readonly ino: number; readonly flags: number }[] = [];
  const timers = new Set<() => void>();
  let world = start;

  /**
   * Makes an effect visible at once. If the operation also makes the effect durable, the effect is
   * durable when the operation returns.
   */
  async function change(name: string, effect: Effect): Promise<void> {
    world = withEffect(world, effect);
    await takeTime();
    await onOperation(name, effect);
  }

  /**
   * If operations hang, lets all timers expire while the operation is in progress. The process may
   * crash afterwards.
   */
  async function takeTime(): Promise<void> {
    if (!machine.hangs) return;
    await nextTurn();
    const expired = [...timers];
    timers.clear();
    for (const onExpiry of expired) onExpiry();
    await nextTurn();
  }

  async function sync(ino: number): Promise<void> {
    if (machine.deniesSync) throw systemError('ERR_ACCESS_DENIED', 'fsync');
    await takeTime();
    await onOperation('sync');
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

  function folderOf(ino: number): number {
    for (const [folder, inode] of world.visible)
      if (inode.kind === 'folder' && [...inode.entries.values()].includes(ino)) return folder;
    throw systemError('ENOENT', `inode ${ino}`);
  }

  function find(path: string): number {
    const ino = inoOf(path);
    if (ino === undefined) throw systemError('ENOENT', path);
    return ino;
  }

  /** Changes entries of the folder that a path is in. */
  function changeEntries(name: string, path: string, ...changes: EntryChange[]): Promise<void> {
    const ino = find(dirname(path));
    return change(`${name} ${basename(path)}`, { kind: 'entries', ino, changes });
  }

  async function create(name: string, path: string, inode: Inode): Promise<number> {
    const ino = Math.max(...world.visible.keys()) + 1;
    world = withNewInode(world, ino, inode);
    await changeEntries(name, path, [basename(path), ino]);
    return ino;
  }

  async function rename(from: string, to: string): Promise<void> {
    if (basename(from).startsWith('.plants-')) return;
    const ino = find(from);
    await changeEntries('rename to', to, [basename(from), undefined], [basename(to), ino]);
  }

  async function link(existing: string, path: string): Promise<void> {
    if (inoOf(path) !== undefined) throw systemError('EEXIST', path);
    await changeEntries('link', path, [basename(path), find(existing)]);
  }

  async function unlink(path: string): Promise<void> {
    find(path);
    await changeEntries('unlink', path, [basename(path), undefined]);
  }

  async function open(path: string, flags: number): Promise<number> {
    let ino = inoOf(path);
    if (ino !== undefined && flags & O_EXCL) throw systemError('EEXIST', path);
    if (ino === undefined && flags & O_CREAT)
      ino = await create('open', path, { kind: 'file', content: Buffer.alloc(0) });
    return openFiles.push({ ino: ino ?? find(path), flags }) - 1;
  }

  const inoOfOpen = (descriptor: number): number => openFiles[descriptor]?.ino ?? 0;

  async function truncate(ino: number, size: number): Promise<void> {
    const before = fileIn(world.visible, ino).length;
    machine.room += before - size;
    if (size < before) await change(`truncate to ${size}`, { kind: 'truncate', ino, size });
  }

  /** Appends to a file. The log never writes at any other position. */
  async function write(fd: number, given: Buffer): Promise<number> {
    const { ino = 0, flags = 0 } = openFiles[fd] ?? {};
    if (machine.room === 0) throw systemError('ENOSPC', 'write');
    // A copy, because the caller may use its buffer again.
    const bytes = Buffer.from(given.subarray(0, machine.room));
    machine.room -= bytes.length;
    const offset = fileIn(world.visible, ino).length;
    const fails = machine.failsToWrite;
    machine.failsToWrite = false;
    const effect = { kind: 'write', ino, offset, bytes } as const;
    await change(`write ${bytes.length} bytes`, effect);
    if (fails) {
      world = withFailed(world, effect);
      throw systemError('EIO', 'write');
    }
    if (dsyncIsDurable && flags & O_DSYNC) {
      world = flushed(world, ino, effect);
      // As on ext4, XFS and Btrfs, a durable write makes the entry of a new file durable.
      if (machine.deniesSync) world = flushed(world, folderOf(ino));
    }
    return bytes.length;
  }

  function statOf(ino: number): unknown {
    const inode = world.visible.get(ino);
    const isFile = inode?.kind === 'file';
    const size = BigInt(isFile ? inode.content.length : 0);
    const owned = { mode: 0o600n, uid: 0n, gid: 0n };
    return { ...owned, dev: 1n, ino: BigInt(ino), size, isFile: () => isFile };
  }

  const fs = {
    open,
    fstat: async (descriptor: number) => statOf(inoOfOpen(descriptor)),
    fchmod: async () => undefined,
    fchown: async () => undefined,
    async read(from: number, buffer: Buffer, position: number) {
      await takeTime();
      return fileIn(world.visible, inoOfOpen(from)).copy(buffer, 0, position);
    },
    write,
    ftruncate: (descriptor: number, size: number) => truncate(inoOfOpen(descriptor), size),
    fsync: (descriptor: number) => sync(inoOfOpen(descriptor)),
    close: async () => undefined,
    async mkdir(path: string): Promise<unknown> {
      if (inoOf(path) !== undefined) throw systemError('EEXIST', path);
      return create('mkdir', path, { kind: 'folder', entries: new Map() });
    },
    async realpath(path: string) {
      find(path);
      return path;
    },
    readdir: async () => [],
    rename,
    link,
    unlink,
    chmod: async () => undefined,
    statSync(path: string) {
      const ino = inoOf(path);
      return ino === undefined ? undefined : statOf(ino);
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
    failsToWrite: false,
    hangs: false,
    deniesSync: false,
    filesIn(path) {
      const ino = inoOf(path);
      const entries = ino === undefined ? [] : [...folderIn(world.visible, ino)];
      return new Map(
        entries.map(([name, file]) => [name, fileIn(world.visible, file).toString('latin1')]),
      );
    },
    inoOf,
  };
  return machine;
}
