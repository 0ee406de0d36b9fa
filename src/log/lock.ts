import { dirname, join } from 'node:path';

import { codeOf } from '../system-error.js';
import { storeErrors, faults, type Holder } from './errors.js';
import { openFolder, type System } from './files.js';

/** Held by the only writer of a log. */
export interface Lock {
  release(): Promise<void>;
}

/*
 * The lock is a Unix socket beside the log, on which its holder listens. When a process ends, however
 * it ends, the kernel closes its sockets. A socket that refuses connections was therefore left by a
 * dead process, and any process may remove it: a lock never outlives its holder. flock(2) would do the
 * same with less, but Node does not offer it.
 *
 * A process that wants the lock makes a claim: a socket of its own, which listens before it is renamed
 * into view, so that no visible claim refuses while its owner is alive. Then the process lists the other
 * claims, once, and takes the lock when none of those is alive any more. Of two claims, the one that
 * became visible later has seen the other. If both have seen each other, the one with the higher name
 * is withdrawn. No name is used twice, so removing a dead claim never removes a live one.
 */

/** The first word that the owner of a claim answers if it holds the lock. Otherwise its answer is empty. */
const HELD = 'held';
/**
 * The answer if this process holds the lock. It contains the time at which the process began, which is the
 * same in all its threads, and exact to a fraction of a microsecond, so that no other process has it.
 */
const HELD_HERE = `${HELD} ${performance.timeOrigin}`;
/** The suffix of a claim's name until it listens. */
const HIDDEN = '.new';
/** A claim to any log: a repair that is killed may leave one to the inode that it has replaced. */
const ANY_CLAIM = /^\.plant-store-\d+-[0-9a-f]{16}-\d+(?:\.new)?$/;
/** How long processes that open the log at the same time contend for it. A lock that is held refuses at once. */
const ACQUIRE_TIMEOUT_MS = 3_000;
const RETRY_DELAY_MS = 10;
/** A process that takes longer to answer is stopped, and may hold the lock. */
const ANSWER_TIMEOUT_MS = 1_000;

/** The longest path that fits into `sun_path` with its NUL: 108 bytes on Linux, 104 on macOS. */
const MAX_SOCKET_PATH_BYTES = 103;

/**
 * Locks the file at `path`, by its inode.
 *
 * @throws PlantStoreError `locked` if another process or this one holds the lock, or if another one may
 * hold it: a process that is stopped (SIGSTOP) does not answer.
 * @throws Error if a process of another user may hold it, which cannot be asked.
 */
export async function acquireLock(system: System, path: string, ino: bigint): Promise<Lock> {
  const folder = dirname(path);
  const handle = await openFolder(system, folder);
  const claims: ClaimFolder = {
    system,
    folder,
    prefix: `.plant-store-${ino}-`,
    descriptor: handle.fd,
  };
  const rank = system.randomBytes(8).toString('hex');
  const deadline = system.now() + ACQUIRE_TIMEOUT_MS;
  try {
    for (let attempt = 1; system.now() < deadline; attempt++) {
      const claim = await createClaim(claims, `${claims.prefix}${rank}-${attempt}`);
      if (claim) {
        const result = await compete(claims, claim, deadline).catch(async (error: unknown) => {
          await claim.release();
          throw error;
        });
        if (result === 'won') {
          claim.markHeld();
          return claim;
        }
        await claim.release();
        if (result !== 'later') throw storeErrors.locked(path, result);
      }
      await system.sleep(RETRY_DELAY_MS);
    }
    throw storeErrors.locked(path, 'another process');
  } finally {
    // Nothing was written through the handle, so a failure to close it has no consequences.
    await handle.close().catch(() => undefined);
  }
}

/** The folder of a log, which holds the claims to it. */
interface ClaimFolder {
  readonly system: System;
  readonly folder: string;
  /** The prefix of the names of all claims to this log. */
  readonly prefix: string;
  /** The file descriptor of the folder. */
  readonly descriptor: number;
}

interface Claim extends Lock {
  readonly name: string;
  /** From now on, answers rivals that the lock is held. */
  markHeld(): void;
}

/** Resolves to `undefined` if a rival took the claim for dead, between bind and listen, and removed it. */
async function createClaim(claims: ClaimFolder, name: string): Promise<Claim | undefined> {
  const { system, folder } = claims;
  const path = join(folder, name);
  let state = '';
  // Both bind(2) here and unlink(2) when the listener is closed run on the main thread, which a file system
  // that hangs would block. Before each of them, this asynchronous call waits until the file system responds.
  await removeClaim(system, path + HIDDEN);
  const listener = await system.listen(socketPath(claims, name + HIDDEN), () => state);
  try {
    // Only this user may connect, whatever the umask.
    await system.chmod(path + HIDDEN, 0o600);
    await system.rename(path + HIDDEN, path);
  } catch (error) {
    listener.close();
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
  return {
    name,
    markHeld() {
      state = HELD_HERE;
    },
    async release() {
      try {
        await removeClaim(system, path);
      } finally {
        listener.close();
      }
    },
  };
}

/**
 * Waits until none of the claims that are visible now is alive. Resolves to the holder if one of
 * them holds the lock, and to `later` if this claim has to be withdrawn and the attempt repeated.
 */
async function compete(
  claims: ClaimFolder,
  { name }: Claim,
  deadline: number,
): Promise<'won' | 'later' | Holder> {
  let names = await visibleClaims(claims, name);
  for (;;) {
    const rivals = await liveRivals(claims, names);
    if (rivals.length === 0) return 'won';
    const holder = rivals.find(({ state }) => state.startsWith(HELD));
    if (holder) return holder.state === HELD_HERE ? 'this process' : 'another process';
    if (rivals.some((rival) => rival.name < name) || claims.system.now() > deadline) return 'later';
    await claims.system.sleep(RETRY_DELAY_MS);
    names = rivals.map((rival) => rival.name);
  }
}

interface Rival {
  readonly name: string;
  readonly state: string;
}

async function visibleClaims(
  { system, folder, prefix }: ClaimFolder,
  ownName: string,
): Promise<string[]> {
  const names = await system.readdir(folder);
  return names.filter(
    (name) => name !== ownName && (name.startsWith(prefix) || ANY_CLAIM.test(name)),
  );
}

/**
 * The visible claims to this log whose owners are alive. Removes the dead claims.
 *
 * @throws Error if one of them belongs to another user, because this process must not connect to it.
 */
async function liveRivals(claims: ClaimFolder, names: readonly string[]): Promise<Rival[]> {
  const rivals: Rival[] = [];
  for (const name of names) {
    const state = removeIfDead(claims, name);
    // Hidden claims and those to other logs do not matter, and may belong to another user.
    if (!name.startsWith(claims.prefix) || name.endsWith(HIDDEN))
      await state.catch(() => undefined);
    else {
      const answer = await state;
      if (answer !== undefined) rivals.push({ name, state: answer });
    }
  }
  return rivals;
}

/** The answer of the owner of a claim: empty if it is stopped, `undefined` if it is dead. */
async function removeIfDead(claims: ClaimFolder, name: string): Promise<string | undefined> {
  const { system, folder } = claims;
  try {
    return await system.ask(socketPath(claims, name), ANSWER_TIMEOUT_MS);
  } catch (error) {
    const path = join(folder, name);
    if (codeOf(error) === 'EACCES') throw faults.otherUser(path, error);
    if (codeOf(error) !== 'ECONNREFUSED' && codeOf(error) !== 'ENOENT') return '';
    await removeClaim(system, path);
    return undefined;
  }
}

function socketPath({ folder, descriptor }: ClaimFolder, name: string): string {
  const path = join(folder, name);
  const fits = Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES;
  return fits ? path : `/proc/self/fd/${descriptor}/${name}`;
}

async function removeClaim(system: System, path: string): Promise<void> {
  try {
    await system.unlink(path);
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
  }
}
