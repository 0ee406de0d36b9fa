import {
  applied,
  beginningsOf,
  keyOf,
  keyOfEffect,
  reachable,
  ROOT,
  withInode,
  type Disk,
  type Effect,
  type Inode,
  type Outcomes,
  type WriteEffect,
} from './disk.js';

/** What a file system holds at one moment: a disk, and the page cache above it. Immutable, like a disk. */
export interface World {
  /** What is on the disk for sure. */
  readonly durable: Disk;
  /** What has happened since and is not durable yet, in order. */
  readonly pending: readonly Effect[];
  /** What every process sees: all of it. */
  readonly visible: Disk;
}

/** A world in which everything is durable. */
export function worldOf(disk: Disk): World {
  return { durable: disk, pending: [], visible: disk };
}

/** A world with these files in a folder. */
export function worldWith(path: string, files: Readonly<Record<string, string>>): World {
  const inodes = new Map<number, Inode>();
  let ino = ROOT;
  for (const name of path.split('/').filter(Boolean))
    inodes.set(ino, { kind: 'folder', entries: new Map([[name, ++ino]]) });
  const entries = new Map(Object.keys(files).map((name, n) => [name, ino + 1 + n]));
  inodes.set(ino, { kind: 'folder', entries });
  for (const content of Object.values(files))
    inodes.set(++ino, { kind: 'file', content: Buffer.from(content, 'latin1') });
  return worldOf(inodes);
}

/** Adds an inode that no folder leads to yet. */
export function withNewInode(world: World, inode: Inode): { world: World; ino: number } {
  const { durable, pending, visible } = world;
  const ino = Math.max(...durable.keys(), ...visible.keys()) + 1;
  return {
    ino,
    world: {
      durable: withInode(durable, ino, inode),
      pending,
      visible: withInode(visible, ino, inode),
    },
  };
}

export function withEffect({ durable, pending, visible }: World, effect: Effect): World {
  return { durable, pending: [...pending, effect], visible: applied(visible, effect) };
}

/** Makes the effects on an inode durable: all of them, or those up to one of them. */
export function flushed(world: World, ino: number, last?: Effect): World {
  const end = last ? world.pending.indexOf(last) : world.pending.length - 1;
  let { durable } = world;
  let rest: Effect[] = [];
  for (const [n, effect] of world.pending.entries())
    if (n > end || effect.ino !== ino || hasFailed(effect)) rest.push(effect);
    else {
      durable = applied(durable, effect);
      if (effect.kind === 'truncate')
        rest = rest.filter((other) => other.ino !== ino || !hasFailed(other));
    }
  return { durable, pending: rest, visible: world.visible };
}

function hasFailed(effect: Effect): boolean {
  return effect.kind === 'write' && effect.failed;
}

/** The world after a write has failed: the page cache holds its bytes, and never writes them again. */
export function withFailed({ durable, pending, visible }: World, failed: WriteEffect): World {
  const effects = pending.map((effect) =>
    effect === failed ? { ...failed, failed: true } : effect,
  );
  return { durable, pending: effects, visible };
}

/** Whether the bytes of a failed write are visible to processes. */
export function showsFailedWrite({ pending }: World): boolean {
  const failed = pending.findLastIndex(hasFailed);
  return failed !== -1 && !pending.slice(failed).some(({ kind }) => kind === 'truncate');
}

/** The worlds that can be left when a process is killed in the middle of an operation. */
export function afterKill(world: World, inFlight: Effect): World[] {
  const n = world.pending.indexOf(inFlight);
  const instead = (effects: readonly Effect[]): World => {
    const pending = world.pending.toSpliced(n, 1, ...effects);
    return { durable: world.durable, pending, visible: pending.reduce(applied, world.durable) };
  };
  return [instead([]), ...[...beginningsOf(inFlight)].map((effect) => instead([effect])), world];
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
export function keyOfWorld({ durable, pending }: World): string {
  return [keyOf(durable), ...pending.map(keyOfEffect)].join('\n\n');
}
