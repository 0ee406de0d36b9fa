import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';

import { codeOf } from '../system-error.js';
import { openFolder, type FileSystem } from './file.js';

/** The right to be the only writer of a log. */
export interface Lock {
  release(): Promise<void>;
}

/*
 * The lock is a Unix domain socket beside the log, on which its holder listens. The kernel stops
 * listening when a process ends, however it ends: a socket that refuses connections is what a dead
 * process left, and anybody may remove it. So no lock can outlive its holder.
 *
 * A claim listens before it is renamed into view, so none that can be seen refuses while its owner
 * lives. Whoever has put a claim in view looks once at what else is there, and takes the lock when
 * none of that is alive any more: of two claims, the one that came into view later has seen the
 * other. Where two have seen each other, the one with the higher name goes. No name is used twice,
 * so removing a dead claim can never hit a live one.
 */
const HELD = 'held';
const HIDDEN = '.new';
/** A claim to any log. A killed repair leaves one for the inode that it has replaced. */
const ANY_CLAIM = /^\.plant-store-\d+-[0-9a-f]{16}-\d+(?:\.new)?$/;
const PATIENCE_MS = 3_000;
const PAUSE_MS = 10;
const ANSWER_MS = 1_000;

/** What fits with a NUL into `sun_path`: Linux has room for 108 bytes, macOS for 104. */
const MAX_SOCKET_PATH_BYTES = 103;

/**
 * Locks the file at `path`, by its inode. Resolves to `undefined` if another process holds the
 * lock, or may hold it: one that has been stopped does not say.
 */
export async function acquireLock(
  fs: FileSystem,
  path: string,
  ino: bigint,
): Promise<Lock | undefined> {
  const folder = dirname(path);
  const handle = await openFolder(fs, folder);
  const place: Place = { fs, folder, prefix: `.plant-store-${ino}-`, descriptor: handle.fd };
  const rank = randomBytes(8).toString('hex');
  const deadline = performance.now() + PATIENCE_MS;
  try {
    for (let attempt = 1; performance.now() < deadline; attempt++) {
      const claim = await makeClaim(place, `${place.prefix}${rank}-${attempt}`);
      if (claim) {
        const result = await contest(place, claim, deadline).catch(async (error: unknown) => {
          await claim.release();
          throw error;
        });
        if (result === 'won') {
          claim.take();
          return claim;
        }
        await claim.release();
        if (result === 'lost') return undefined;
      }
      await sleep(PAUSE_MS);
    }
    return undefined;
  } finally {
    // Nothing was written through it, so a failure means nothing.
    await handle.close().catch(() => undefined);
  }
}

/** Where the claims to a log are put. */
interface Place {
  readonly fs: FileSystem;
  readonly folder: string;
  /** How the names of all claims to this log begin. */
  readonly prefix: string;
  /** The file descriptor of the folder. */
  readonly descriptor: number;
}

interface Claim extends Lock {
  readonly name: string;
  /** Tells rivals from now on that the lock is held. */
  take(): void;
}

/** Resolves to `undefined` if a rival came between bind and listen, and took the claim for dead. */
async function makeClaim(place: Place, name: string): Promise<Claim | undefined> {
  let state = '';
  const server = createServer((socket) => socket.on('error', () => undefined).end(state)).unref();
  // Without `exclusive`, the socket of a cluster worker would belong to the primary.
  server.listen({ path: socketPath(place, name + HIDDEN), exclusive: true });
  await once(server, 'listening');
  const { fs, folder } = place;
  const path = join(folder, name);
  try {
    // Only this user may connect, whatever the umask.
    await fs.chmod(path + HIDDEN, 0o600);
    await fs.rename(path + HIDDEN, path);
  } catch (error) {
    server.close();
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
  return {
    name,
    take() {
      state = HELD;
    },
    async release() {
      server.close();
      await removeClaim(fs, path);
    },
  };
}

/** Waits until all claims that a new one finds in view are gone, unless it is the one to go. */
async function contest(
  place: Place,
  { name }: Claim,
  deadline: number,
): Promise<'won' | 'lost' | 'later'> {
  let names = await namesInView(place, name);
  for (;;) {
    const rivals = await livingOf(place, names);
    if (rivals.length === 0) return 'won';
    if (rivals.some((rival) => rival.state === HELD)) return 'lost';
    if (rivals.some((rival) => rival.name < name) || performance.now() > deadline) return 'later';
    await sleep(PAUSE_MS);
    names = rivals.map((rival) => rival.name);
  }
}

interface Rival {
  readonly name: string;
  readonly state: string;
}

async function namesInView({ fs, folder, prefix }: Place, ownName: string): Promise<string[]> {
  const names = await fs.readdir(folder);
  return names.filter(
    (name) => name !== ownName && (name.startsWith(prefix) || ANY_CLAIM.test(name)),
  );
}

/** Those claims whose owners are alive. Removes the dead ones. */
async function livingOf(place: Place, names: readonly string[]): Promise<Rival[]> {
  const rivals: Rival[] = [];
  for (const name of names) {
    const state = await stateOf(socketPath(place, name));
    if (state === undefined) await removeClaim(place.fs, join(place.folder, name));
    else if (name.startsWith(place.prefix) && !name.endsWith(HIDDEN)) rivals.push({ name, state });
  }
  return rivals;
}

/** What the owner of a claim says of it: nothing if it has been stopped, `undefined` if it is dead. */
async function stateOf(path: string): Promise<string | undefined> {
  const socket = connect(path);
  socket.setTimeout(ANSWER_MS, () => socket.destroy());
  try {
    return await text(socket);
  } catch (error) {
    return codeOf(error) === 'ECONNREFUSED' || codeOf(error) === 'ENOENT' ? undefined : '';
  }
}

function socketPath({ folder, descriptor }: Omit<Place, 'fs'>, name: string): string {
  const path = join(folder, name);
  const fits = Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES;
  return fits ? path : `/proc/self/fd/${descriptor}/${name}`;
}

async function removeClaim(fs: FileSystem, path: string): Promise<void> {
  try {
    await fs.unlink(path);
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
  }
}
