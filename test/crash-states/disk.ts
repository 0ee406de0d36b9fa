import type { Random } from './random.js';

/*
 * The content of a simulated disk, and what can remain of changes to it after a power cut. A disk
 * is immutable: a change returns a new disk, which shares everything unchanged.
 *
 * The simulated file system promises this, and no more:
 *
 * - A write to a file opened with `O_DSYNC` is durable once it has returned, and so are the size of
 *   the file and every earlier truncation. On macOS, all of this is durable only after `fsync`.
 * - Of a write in flight, any subset of its sectors may be on the disk. The file may end at the end
 *   of the write, at the end of any sector, or where it ended before; what was not written is
 *   zeros. Bytes that were durable stay as they were.
 * - A truncation that is not durable has happened or not, whatever was written after it.
 * - A created, renamed or removed entry is durable once its folder has been synced. Until then,
 *   each of these changes has happened or not, in any combination. A rename is atomic.
 * - The operations of a killed process stay in the page cache. The operation in flight has happened
 *   or not; a write may also have stopped after any sector.
 * - Any of these operations may hang. Then it has happened or not, and may still happen.
 * - A write that fails with `EIO` may have left all of its bytes in the page cache. No later sync
 *   writes them.
 */

/** A disk writes a sector as a whole or not at all. */
const SECTOR_BYTES = 512;

export const ROOT = 1;

export type Entries = ReadonlyMap<string, number>;

export type Inode =
  | { readonly kind: 'file'; readonly content: Buffer }
  | { readonly kind: 'folder'; readonly entries: Entries };

/** Inodes by their numbers. */
export type Disk = ReadonlyMap<number, Inode>;

/** A name with its new inode; with `undefined`, if it is removed. */
export type EntryChange = readonly [name: string, ino: number | undefined];

/** A change of one inode. */
export type Effect =
  // Atomic: a rename changes two entries, or none.
  | { readonly kind: 'entries'; readonly ino: number; readonly changes: readonly EntryChange[] }
  | { readonly kind: 'truncate'; readonly ino: number; readonly size: number }
  | WriteEffect;

export interface WriteEffect {
  readonly kind: 'write';
  readonly ino: number;
  readonly offset: number;
  readonly bytes: Buffer;
}

export function fileIn(disk: Disk, ino: number): Buffer {
  const inode = disk.get(ino);
  if (inode?.kind !== 'file') throw new Error(`inode ${ino} is not a file`);
  return inode.content;
}

export function folderIn(disk: Disk, ino: number): Entries {
  const inode = disk.get(ino);
  if (inode?.kind !== 'folder') throw new Error(`inode ${ino} is not a folder`);
  return inode.entries;
}

export function withInode(disk: Disk, ino: number, inode: Inode): Disk {
  return new Map(disk).set(ino, inode);
}

/** The disk after all of an effect has happened. */
export function applied(disk: Disk, effect: Effect): Disk {
  const { ino } = effect;
  switch (effect.kind) {
    case 'entries': {
      const entries = new Map(folderIn(disk, ino));
      for (const [name, target] of effect.changes)
        if (target === undefined) entries.delete(name);
        else entries.set(name, target);
      return withInode(disk, ino, { kind: 'folder', entries });
    }
    case 'truncate': {
      const content = fileIn(disk, ino).subarray(0, effect.size);
      return withInode(disk, ino, { kind: 'file', content });
    }
    case 'write':
      return withParts(disk, ino, effect.offset + effect.bytes.length, [effect]);
  }
}

/** Chooses which parts of an effect have reached the disk when the power is cut. */
export type Outcomes = (disk: Disk, effect: Effect) => Iterable<Disk>;

/** Every disk that an effect can leave when the power is cut. */
export function* allOutcomes(disk: Disk, effect: Effect): Iterable<Disk> {
  if (effect.kind !== 'write') {
    yield disk;
    yield applied(disk, effect);
    return;
  }
  const parts = partsOf(effect);
  if (parts.length > 12)
    throw new Error(`a write to ${parts.length} sectors has too many outcomes`);
  for (const size of sizesAfter(disk, effect))
    for (let subset = 0; subset < 2 ** parts.length; subset++) {
      const written = parts.filter((_, n) => ((subset >> n) & 1) === 1);
      yield withParts(disk, effect.ino, size, written);
    }
}

/** Chooses one of the disks that an effect can leave, at random. */
export function randomOutcome(random: Random): Outcomes {
  return (disk, effect) => {
    if (effect.kind !== 'write') return [random.chance(0.5) ? disk : applied(disk, effect)];
    const share = random();
    const written = partsOf(effect).filter(() => random.chance(share));
    const end = effect.offset + effect.bytes.length;
    const size = random.pick([end, end, ...sizesAfter(disk, effect)]);
    return [withParts(disk, effect.ino, size, written)];
  };
}

/** A part of a write that is in one sector. */
type Part = Pick<WriteEffect, 'offset' | 'bytes'>;

function partsOf({ offset, bytes }: WriteEffect): Part[] {
  const parts: Part[] = [];
  for (let start = 0; start < bytes.length;) {
    const at = offset + start;
    const end = start + SECTOR_BYTES - (at % SECTOR_BYTES);
    parts.push({ offset: at, bytes: bytes.subarray(start, end) });
    start = end;
  }
  return parts;
}

/** The sizes that a file can have after a write that the power cut has interrupted. */
function sizesAfter(disk: Disk, effect: WriteEffect): number[] {
  const before = fileIn(disk, effect.ino).length;
  const ends = partsOf(effect).map(({ offset, bytes }) => offset + bytes.length);
  return [before, ...ends.filter((end) => end > before)];
}

/** Extends a file with zeros up to `size`, if it is shorter, then writes parts of it. */
function withParts(disk: Disk, ino: number, size: number, parts: readonly Part[]): Disk {
  const before = fileIn(disk, ino);
  const content = Buffer.alloc(Math.max(before.length, size));
  before.copy(content);
  for (const { offset, bytes } of parts) bytes.copy(content, offset);
  return withInode(disk, ino, { kind: 'file', content });
}

/**
 * The parts of an effect that a killed process may have carried out: a write ends after any sector.
 */
export function beginningsOf(effect: Effect): Effect[] {
  if (effect.kind !== 'write') return [];
  const ends = partsOf(effect).map(({ offset, bytes }) => offset + bytes.length - effect.offset);
  return ends.slice(0, -1).map((end) => ({ ...effect, bytes: effect.bytes.subarray(0, end) }));
}

/** The disk without inodes that no folder leads to. */
export function reachable(disk: Disk): Disk {
  const kept = new Map<number, Inode>();
  const folders = [ROOT];
  for (const ino of folders) {
    const entries = folderIn(disk, ino);
    kept.set(ino, { kind: 'folder', entries });
    for (const target of entries.values()) {
      const inode = disk.get(target);
      if (inode?.kind === 'folder') folders.push(target);
      else if (inode) kept.set(target, inode);
    }
  }
  return kept;
}

/** A text that is the same for disks with equal inodes of the same numbers. */
export function keyOf(disk: Disk): string {
  const texts = [...disk].map(([ino, inode]) => {
    if (inode.kind === 'file') return `${ino}:${inode.content.toString('latin1')}`;
    const entries = [...inode.entries].map(([name, to]) => `${name}:${to}`);
    return `${ino}:${entries.sort().join(' ')}`;
  });
  return texts.sort().join(';');
}
