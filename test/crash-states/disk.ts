import { createHash } from 'node:crypto';

/*
 * The content of a simulated disk, and what can remain of changes to it after a power cut. A disk is
 * immutable: a change returns a new disk, which shares everything unchanged.
 *
 * The simulated file system promises this, and no more:
 *
 * - A write to a file opened with `O_DSYNC` is durable once it has returned, and so are the size of the file and
 *   every earlier cut. On macOS, all of this is durable only after `fsync`.
 * - Of a write in flight, any subset of its sectors may be on the disk. The file may end at the end of the write, at
 *   the end of any sector, or where it ended before; sectors that were not written contain zeros. Bytes that were
 *   durable stay as they were.
 * - A cut that is not durable has happened or not, whatever was written after it.
 * - A created, renamed or removed entry is durable once its folder has been synced. Until then, each of these
 *   changes has happened or not, in any combination. A rename is atomic.
 * - The operations of a killed process stay in the page cache. The operation in flight has happened or not; a write
 *   may also have stopped after any sector.
 * - Any of these operations may hang. Then it has happened or not, and may still happen.
 * - A write that fails with `EIO` may have left all of its bytes in the page cache. No later sync writes them.
 */

/** A disk writes a sector as a whole or not at all. */
export const SECTOR_BYTES = 512;

export const ROOT = 1;

export type Entries = ReadonlyMap<string, number>;

export type Inode =
  | { readonly kind: 'file'; readonly content: Buffer }
  | { readonly kind: 'folder'; readonly entries: Entries };

/** Inodes by their numbers. */
export type Disk = ReadonlyMap<number, Inode>;

/** A change of one inode. */
export type Effect = EntriesEffect | TruncateEffect | WriteEffect;

/** Atomic: a rename changes two entries, or none. */
interface EntriesEffect {
  readonly kind: 'entries';
  readonly ino: number;
  /** Each name with its new inode; with `undefined`, if it is removed. */
  readonly changes: readonly (readonly [name: string, ino: number | undefined])[];
}

interface TruncateEffect {
  readonly kind: 'truncate';
  readonly ino: number;
  readonly size: number;
}

export interface WriteEffect {
  readonly kind: 'write';
  readonly ino: number;
  readonly offset: number;
  readonly bytes: Buffer;
  /**
   * What the page cache holds after the write, from the start of its first sector on. The disk gets
   * whole sectors of this, with the bytes that were in them before.
   */
  readonly sectors: Buffer;
  /** Whether the write has failed: then the page cache holds its bytes, but never writes them again. */
  readonly failed: boolean;
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

/** The disk after an effect that has happened as a whole. */
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
    case 'write': {
      const before = fileIn(disk, ino);
      const content = Buffer.alloc(Math.max(before.length, effect.offset + effect.bytes.length));
      before.copy(content);
      effect.bytes.copy(content, effect.offset);
      return withInode(disk, ino, { kind: 'file', content });
    }
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
  const { first, count, sizes } = extentOf(disk, effect);
  if (count > 12) throw new Error(`a write to ${count} sectors has too many outcomes`);
  for (const size of sizes)
    for (let subset = 0; subset < 2 ** count; subset++)
      yield withSectors(disk, effect, size, (sector) => ((subset >> (sector - first)) & 1) === 1);
}

/** One of the disks that an effect can leave. */
export function randomOutcome(random: () => number): Outcomes {
  return (disk, effect) => {
    if (effect.kind !== 'write' || random() < 0.5)
      return [random() < 0.5 ? disk : applied(disk, effect)];
    const { sizes } = extentOf(disk, effect);
    const size = sizes[Math.floor(random() * random() * sizes.length)] as number;
    const share = random();
    return [withSectors(disk, effect, size, () => random() < share)];
  };
}

/** The sectors of a write, and the sizes that the file can have, the largest one first. */
function extentOf(disk: Disk, { ino, offset, bytes }: WriteEffect) {
  const before = fileIn(disk, ino).length;
  const end = offset + bytes.length;
  const first = Math.floor(offset / SECTOR_BYTES);
  const count = Math.ceil(end / SECTOR_BYTES) - first;
  const boundaries = Array.from(
    { length: count - 1 },
    (_, n) => (first + count - 1 - n) * SECTOR_BYTES,
  );
  const sizes = [end, ...boundaries].filter((size) => size > before);
  return { first, count, sizes: [...sizes, before] };
}

/** Extends a file with zeros up to `size`, then writes the chosen sectors. */
function withSectors(
  disk: Disk,
  { ino, offset, bytes, sectors }: WriteEffect,
  size: number,
  isWritten: (sector: number) => boolean,
): Disk {
  const before = fileIn(disk, ino);
  const content = Buffer.alloc(Math.max(before.length, size));
  before.copy(content);
  const first = Math.floor(offset / SECTOR_BYTES);
  const end = Math.min(offset + bytes.length, content.length);
  for (let sector = first; sector * SECTOR_BYTES < end; sector++)
    if (isWritten(sector)) {
      const from = (sector - first) * SECTOR_BYTES;
      const target = content.subarray(sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES);
      // If the file is longer than the page cache knows, the rest of the sector becomes zeros.
      target.fill(0, sectors.copy(target, 0, from, from + SECTOR_BYTES));
    }
  return withInode(disk, ino, { kind: 'file', content });
}

/** The parts of an effect that a killed process may have carried out: a write ends after any sector. */
export function* beginningsOf(effect: Effect): Iterable<Effect> {
  if (effect.kind !== 'write') return;
  const { offset, bytes, sectors } = effect;
  const start = offset % SECTOR_BYTES;
  for (let end = SECTOR_BYTES; end < start + bytes.length; end += SECTOR_BYTES)
    yield { ...effect, bytes: bytes.subarray(0, end - start), sectors: sectors.subarray(0, end) };
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
    if (inode.kind === 'file') return `${ino}:${digestOf(inode.content)}`;
    const entries = [...inode.entries].map(([name, to]) => `${name}:${to}`);
    return `${ino}:${entries.sort().join(' ')}`;
  });
  return texts.sort().join(';');
}

export function keyOfEffect(effect: Effect): string {
  const { kind, ino } = effect;
  if (kind === 'entries')
    return `${ino} ${effect.changes.map(([name, to]) => `${to}:${name}`).join(' ')}`;
  if (kind === 'truncate') return `${ino} truncate ${effect.size}`;
  return `${ino} write ${effect.offset} ${effect.failed} ${digestOf(effect.bytes)}`;
}

const digests = new WeakMap<Buffer, string>();

/** A short text that is different for different bytes. */
export function digestOf(content: Buffer): string {
  let digest = digests.get(content);
  if (digest === undefined) {
    digest = createHash('md5').update(content).digest('base64');
    digests.set(content, digest);
  }
  return digest;
}
