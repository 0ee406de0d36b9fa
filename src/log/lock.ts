import { constants } from 'node:fs';
import { dirname, join } from 'node:path';

import { codeOf } from '../system-error.js';
import { storeErrors } from './errors.js';
import { tryToRemove } from './files.js';
import type { System } from './system.js';

/** Held by the only writer of a log. */
export interface Lock {
  release(): Promise<void>;
}

/*
 * The lock is a Unix socket beside the log, on which its holder listens. When a process ends, for
 * whatever reason, the kernel closes its sockets. A socket that refuses connections was therefore
 * left by a dead process, and any process may remove it: a lock never outlives its holder. flock(2)
 * would do the same with less code, but Node does not offer it.
 *
 * A process that wants the lock makes a claim: a socket of its own. The socket has a temporary name
 * until it listens. So a claim with its final name refuses connections only if its owner is dead.
 * Then the process lists the other claims, once, and holds the lock if none of them is alive.
 * Otherwise it withdraws its claim. Of two claims, the one that got its final name later has seen
 * the other. Claims with temporary names are listed, too, so that dead ones are removed. A claim
 * that does not listen yet may be removed with them: its owner then tries again. No name is used
 * twice, so a dead claim that is removed cannot have been replaced by a live one meanwhile.
 */

/** The suffix of the temporary name of a claim. */
const TEMPORARY = '~';
/** No name is used twice. In Base64, these bytes take 11 characters. */
const RANDOM_BYTES = 8;
const RANDOM_LENGTH = 11;
/**
 * How long a process tries to get the lock: a process may be started before the one that it
 * replaces has ended.
 */
const ACQUIRE_TIMEOUT_MS = 3_000;
/**
 * The pause after an attempt is random. Its upper bound doubles with each attempt, from the first
 * value to the second one, so that of many processes one is soon alone.
 */
const FIRST_PAUSE_MS = 10;
const LONGEST_PAUSE_MS = 500;
/**
 * A socket that gives one of these errors has no living owner. With any other error, the owner may
 * be alive. EAGAIN, for example, means that the queue of connections is full, which happens to a
 * stopped process.
 */
const DEAD: readonly unknown[] = ['ECONNREFUSED', 'ENOENT'];
/** The longest path that fits into `sun_path` with its NUL: 108 bytes on Linux, 104 on macOS. */
const MAX_SOCKET_PATH_BYTES = 103;

/** The prefix of the names of all claims to the log with an inode. */
export const claimPrefix = (ino: bigint): string => `.plants-${ino.toString(36)}-`;

/** The folder of a log, which holds the claims to it. */
interface ClaimFolder {
  readonly system: System;
  readonly path: string;
  /** The path of the folder in the addresses of sockets: `path` if that is short enough. */
  readonly socketFolder: string;
  /** The prefix of the names of the claims. */
  readonly prefix: string;
}

/**
 * Locks the file at `path`, by its inode.
 *
 * @throws PlantStoreError `locked` if another process or this one holds the lock for 3 s. A process
 * that is stopped (SIGSTOP) keeps it.
 */
export async function acquireLock(system: System, path: string, ino: bigint): Promise<Lock> {
  const descriptor = await system.open(dirname(path), constants.O_RDONLY);
  // Set by a timer, which tests simulate. An object, because TypeScript takes a variable that only
  // a callback sets for a constant.
  const time = { isUp: false };
  try {
    const folder = await claimFolderOf(system, dirname(path), descriptor, claimPrefix(ino));
    system.startTimer(() => (time.isUp = true), ACQUIRE_TIMEOUT_MS);
    for (let pause = FIRST_PAUSE_MS; !time.isUp; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      const lock = await tryToLock(folder);
      if (lock) return lock;
      await system.sleep(pause * Math.random());
    }
    throw storeErrors.locked(path);
  } finally {
    // Nothing was written through it, so a failure to close it has no consequences.
    await system.close(descriptor).catch(() => undefined);
  }
}

/**
 * The folder of a log, which is open as `descriptor`. If the paths of its sockets would be too
 * long, they begin with the short path of the descriptor in /proc.
 *
 * @throws PlantStoreError `unavailable` if they would be too long, and there is no /proc.
 */
async function claimFolderOf(
  system: System,
  path: string,
  descriptor: number,
  prefix: string,
): Promise<ClaimFolder> {
  const length = Buffer.byteLength(join(path, prefix + TEMPORARY)) + RANDOM_LENGTH;
  if (length <= MAX_SOCKET_PATH_BYTES) return { system, path, socketFolder: path, prefix };
  const socketFolder = `/proc/self/fd/${descriptor}`;
  await system.realpath(socketFolder).catch((error: unknown) => {
    // There is no /proc, as on macOS. Any other error occurs again when the socket is created.
    if (codeOf(error) === 'ENOENT') throw storeErrors.longPath(path);
  });
  return { system, path, socketFolder, prefix };
}

/** Resolves to `undefined` if another claim is alive. */
async function tryToLock(folder: ClaimFolder): Promise<Lock | undefined> {
  // Reduces contention: few processes claim at the same time.
  if (!(await removeDeadClaims(folder))) return undefined;
  const name = folder.prefix + folder.system.randomBytes(RANDOM_BYTES).toString('base64url');
  const claim = await createClaim(folder, name);
  let isAlone = false;
  try {
    isAlone = claim !== undefined && (await removeDeadClaims(folder, name));
    return isAlone ? claim : undefined;
  } finally {
    if (!isAlone) await claim?.release();
  }
}

/**
 * Creates a claim, which is the lock if no other claim is alive. Resolves to `undefined` if another
 * process took the claim for dead, between bind(2) and listen(2), and removed it.
 */
async function createClaim(folder: ClaimFolder, name: string): Promise<Lock | undefined> {
  const { system, socketFolder } = folder;
  const path = join(folder.path, name);
  const temporary = path + TEMPORARY;
  let listener: { close(): void } | undefined;
  try {
    listener = await system.listen(join(socketFolder, name + TEMPORARY));
    // Every user may connect, whatever the umask: otherwise another user's dead claim would pass
    // for alive. In a folder that Docker Desktop shares, chmod(2) fails; on exFAT, bind(2) does.
    await system.chmod(temporary, 0o666);
    await system.rename(temporary, path);
  } catch (error) {
    await tryToRemove(system, temporary);
    listener?.close();
    // Another process has removed the socket.
    if (listener && codeOf(error) === 'ENOENT') return undefined;
    throw storeErrors.noSocket(folder.path, error);
  }
  return {
    async release() {
      // First, so that the claim does not refuse connections while its owner is alive. Closing the
      // listener removes only the temporary name, which no longer exists.
      await tryToRemove(system, path);
      listener.close();
    },
  };
}

/**
 * Removes the dead claims to this log until a live one is found. Resolves to whether none was
 * found. The claim with `ownName` is skipped.
 */
async function removeDeadClaims(folder: ClaimFolder, ownName?: string): Promise<boolean> {
  const { system, path, socketFolder, prefix } = folder;
  for (const name of await system.readdir(path)) {
    if (!name.startsWith(prefix) || name === ownName) continue;
    try {
      await system.connect(join(socketFolder, name));
      return false;
    } catch (error) {
      if (!DEAD.includes(codeOf(error))) return false;
      // Has no effect if only another user may remove the claim.
      await tryToRemove(system, join(path, name));
    }
  }
  return true;
}
