import { constants, type BigIntStats } from 'node:fs';
import { dirname } from 'node:path';
import { crc32 } from 'node:zlib';

import {
  CHANGED,
  failureOf,
  lockedFailure,
  statOf,
  syncFolder,
  writeAll,
  type FileSystem,
  type LogFile,
} from './file.js';
import { createIdIndex } from './id-index.js';
import { acquireLock } from './lock.js';
import { HIGH, LOW } from './record.js';
import { chunksOf, sameId, scan, type Damage, type Range } from './scan.js';

/** What a log holds, whole or damaged. */
export interface Verification {
  readonly plants: number;
  readonly damagedLines: number;
  /** The size of the file. */
  readonly bytes: number;
  /** How many of them follow the last newline: a write under way, or one that never came to its end. */
  readonly tornBytes: number;
}

export interface VerifyOptions {
  readonly onDamage: (damage: Damage) => void;
  readonly onProgress: (bytes: number, totalBytes: number) => void;
}

const { O_CREAT, O_DSYNC, O_EXCL, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;

/** Reads a log and changes nothing. A server may have it open meanwhile. */
export async function verifyLog(
  fs: FileSystem,
  path: string,
  options: VerifyOptions,
): Promise<Verification> {
  return withFile(fs, path, (file, { size }) => check(file, Number(size), options));
}

async function withFile<Result>(
  fs: FileSystem,
  path: string,
  work: (file: LogFile, stats: BigIntStats) => Promise<Result>,
): Promise<Result> {
  try {
    // Nobody need ever write to a pipe, so to open it could take for ever.
    const file = await fs.open(path, O_RDONLY | O_NONBLOCK);
    try {
      return await work(file, await statOf(file));
    } finally {
      await file.close();
    }
  } catch (error) {
    throw failureOf(path, error);
  }
}

async function check(
  file: LogFile,
  size: number,
  { onDamage, onProgress }: VerifyOptions,
): Promise<Verification> {
  const index = createIdIndex();
  let damagedLines = 0;
  const torn = await scan(file, {
    onRecord(id, offset) {
      const earlier = index.add(id[LOW] as number, id[HIGH] as number, offset);
      return earlier === undefined ? undefined : sameId(earlier);
    },
    onDamage(damage) {
      damagedLines++;
      onDamage(damage);
    },
    // A server may have made it longer meanwhile.
    onProgress: (bytes) => onProgress(Math.min(bytes, size), size),
  });
  const tornBytes = torn.bytes.length;
  return { plants: index.size, damagedLines, bytes: torn.offset + tornBytes, tornBytes };
}

export interface Repair extends Verification {
  /** Where the damaged lines are now. */
  readonly damagedPath: string;
}

/**
 * Moves the damaged lines of a log to a file beside it, and keeps all others byte for byte. The log
 * is replaced in one step, once its new content is on the disk.
 *
 * Resolves to `undefined` if no line is damaged.
 *
 * @throws PlantStoreError `locked` if a server has the log open.
 */
export async function repairLog(
  fs: FileSystem,
  givenPath: string,
  onProgress: VerifyOptions['onProgress'],
): Promise<Repair | undefined> {
  return withFile(fs, givenPath, async (file, { ino, size }) => {
    const path = await fs.realpath(givenPath);
    const lock = await acquireLock(fs, path, ino);
    if (!lock) throw lockedFailure(path);
    try {
      const damaged: Range[] = [];
      const verification = await check(file, Number(size), {
        onDamage: ({ offset, length }) => addRange(damaged, offset, offset + length),
        onProgress,
      });
      if (damaged.length === 0) return undefined;
      const log = { path, file, ino, bytes: verification.bytes };
      const damagedPath = await moveDamage(fs, log, damaged);
      return { ...verification, damagedPath };
    } finally {
      await lock.release();
    }
  });
}

/** Adds what follows all other ranges. */
function addRange(ranges: Range[], start: number, end: number): void {
  const last = ranges.at(-1);
  if (last?.end === start) last.end = end;
  else ranges.push({ start, end });
}

/** A log that is locked and has been read. */
interface ReadLog {
  readonly path: string;
  readonly file: LogFile;
  readonly ino: bigint;
  readonly bytes: number;
}

async function moveDamage(
  fs: FileSystem,
  log: ReadLog,
  damaged: readonly Range[],
): Promise<string> {
  const starts = [0, ...damaged.map(({ end }) => end)];
  const ends = [...damaged.map(({ start }) => start), log.bytes];
  const whole = starts.map((start, i) => ({ start, end: ends[i] as number }));

  const { path, file } = log;
  const copyPath = `${path}.repair.new`;
  refuseIfChanged(fs, log);
  // A repair that was interrupted may have left one.
  await discard(fs, copyPath);
  try {
    const checksum = await copy(fs, file, damaged, copyPath);
    const damagedPath = `${path}.damaged-${checksum.toString(16)}`;
    await fs.rename(copyPath, damagedPath);
    await syncFolder(fs, dirname(path));

    await copy(fs, file, whole, copyPath);
    refuseIfChanged(fs, log);
    await fs.rename(copyPath, path);
    await syncFolder(fs, dirname(path));
    return damagedPath;
  } catch (error) {
    await discard(fs, copyPath);
    throw error;
  }
}

/** The lock is on the inode: before it was taken, another repair may have put a new one in place. */
function refuseIfChanged(fs: FileSystem, { path, ino, bytes }: ReadLog): void {
  const now = fs.statSync(path, { bigint: true });
  if (now.ino !== ino || now.size !== BigInt(bytes)) throw new Error(CHANGED);
}

async function discard(fs: FileSystem, path: string): Promise<void> {
  await fs.unlink(path).catch(() => undefined);
}

/** Copies bytes to a new file of the same owner and mode; resolves to their CRC-32. */
async function copy(
  fs: FileSystem,
  from: LogFile,
  ranges: readonly Range[],
  path: string,
): Promise<number> {
  const { mode, uid, gid } = await from.stat();
  // Whoever may write to the folder must not be able to direct the copy elsewhere by a link.
  const to = await fs.open(path, O_WRONLY | O_CREAT | O_EXCL | O_DSYNC, mode & 0o777);
  try {
    const made = await to.stat();
    if (made.uid !== uid || made.gid !== gid) await to.chown(uid, gid);
    if (((made.mode ^ mode) & 0o777) !== 0) await to.chmod(mode & 0o777);
    let checksum = 0;
    for await (const chunk of chunksOf(from, ranges)) {
      await writeAll(fs, to, chunk);
      checksum = crc32(chunk, checksum);
    }
    return checksum;
  } finally {
    await to.close();
  }
}
