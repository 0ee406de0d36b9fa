import {
  applied,
  beginningsOf,
  keyOf,
  reachable,
  ROOT,
  withInode,
  type Disk,
  type Effect,
  type Inode,
  type Outcomes,
} from './disk.js';

/**
 * What a file system holds at one moment: a disk, and the page cache above it. Immutable, like a
 * disk.
 */
export interface World {
  /** What is certainly on the disk. */
  readonly durable: Disk;
  /** The effects that are not durable yet, in order. */
  readonly pending: readonly Effect[];
  /** What every process sees: the durable disk after all pending effects. */
  readonly visible: Disk;
}

/** A world in which everything is durable. */
function worldOf(disk: Disk): World {
  return { durable: disk, pending: [], visible: disk };
}

/** A world with a folder, and perhaps a log in it. */
export function worldWith(folder: string, log?: string): World {
  const inodes = new Map<number, Inode>();
  let ino = ROOT;
  for (const name of folder.split('/').filter(Boolean))
    inodes.set(ino, { kind: 'folder', entries: new Map([[name, ++ino]]) });
  const entries = new Map(log === undefined ? [] : [['plants.jsonl', ino + 1]]);
  inodes.set(ino, { kind: 'folder', entries });
  if (log !== undefined) inodes.set(ino + 1, { kind: 'file', content: Buffer.from(log, 'latin1') });
  return worldOf(inodes);
}

/** Adds an inode that no folder leads to yet. */
export function withNewInode(world: World, ino: number, inode: Inode): World {
  const { durable, pending, visible } = world;
  return {
    durable: withInode(durable, ino, inode),
    pending,
    visible: withInode(visible, ino, inode),
  };
}

export function withEffect({ durable, pending, visible }: World, effect: Effect): World {
  return { durable, pending: [...pending, effect], visible: applied(visible, effect) };
}

/** Makes the effects on an inode durable: all of them, or only those up to `last`. */
export function flushed({ durable, pending, visible }: World, ino: number, last?: Effect): World {
  const end = last ? pending.indexOf(last) : pending.length;
  const isFlushed = (effect: Effect, n: number): boolean => effect.ino === ino && n <= end;
  return {
    durable: pending.filter(isFlushed).reduce(applied, durable),
    pending: pending.filter((effect, n) => !isFlushed(effect, n)),
    visible,
  };
}

/**
 * The world after a write has failed: the page cache holds its bytes, and never writes them to the
 * disk.
 */
export function withFailed({ durable, pending, visible }: World, failed: Effect): World {
  return { durable, pending: pending.filter((effect) => effect !== failed), visible };
}

/**
 * The worlds that can be left when a process is killed, perhaps in the middle of an operation. A
 * truncation that undoes a failed write counts as done: the log promises nothing for the time
 * between the write and the truncation.
 */
export function afterKill(world: World, inFlight?: Effect): World[] {
  if (!inFlight) return [world];
  const n = world.pending.indexOf(inFlight);
  const instead = (...effects: readonly Effect[]): World => {
    const pending = world.pending.toSpliced(n, 1, ...effects);
    return { durable: world.durable, pending, visible: pending.reduce(applied, world.durable) };
  };
  return [instead(), ...beginningsOf(inFlight).map((effect) => instead(effect)), world];
}

/** The worlds that a power cut can leave. */
export function afterPowerCut({ durable, pending }: World, outcomes: Outcomes): World[] {
  let disks = new Map([['', durable]]);
  for (const effect of pending) {
    const next = new Map<string, Disk>();
    for (const disk of disks.values())
      for (const outcome of outcomes(disk, effect)) next.set(keyOf(outcome), outcome);
    disks = next;
  }
  return [...disks.values()].map((disk) => worldOf(reachable(disk)));
}

/** A text that is the same for equal worlds. */
export function keyOfWorld({ durable, pending, visible }: World): string {
  const effects = pending.map((effect) => Object.values(effect).join(' '));
  return [keyOf(durable), ...effects, keyOf(visible)].join(';');
}
