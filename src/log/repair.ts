import { constants } from 'node:fs';
import { dirname } from 'node:path';
import { crc32 } from 'node:zlib';

import { chunksOf, unusedPath, type Range } from './aside.js';
import { faults } from './errors.js';
import {
  removeIfPresent,
  syncFolder,
  writeAll,
  sizeOf,
  type FileSystem,
  type OpenFile,
  type FileId,
  type System,
} from './files.js';
import { acquireLock } from './lock.js';
import { checkLines, withFile, type Verification, type VerifyOptions } from './verify.js';

const { O_CREAT, O_DSYNC, O_EXCL, O_WRONLY } = constants;

export interface Repair extends Verification {
  /** The file that the damaged lines were moved to. */
  readonly damagedPath: string;
}

/**
 * Moves the damaged lines of a log to a file beside it, and keeps all others byte for byte. The log
 * is replaced atomically, once its new content is durable. Resolves to `undefined` if no line is
 * damaged.
 *
 * @throws PlantStoreError `locked` if a process has the log open; `unavailable` if a file cannot be
 * read or written.
 */
export async function repairLog(
  system: System,
  givenPath: string,
  onProgress: VerifyOptions['onProgress'],
): Promise<Repair | undefined> {
  return withFile(system, givenPath, async (file, { dev, ino, size }) => {
    const path = await system.realpath(givenPath);
    const lock = await acquireLock(system, path, ino);
    try {
      const damaged: Range[] = [];
      const verification = await checkLines(file, Number(size), {
        onDamage: ({ offset, length }) => addRange(damaged, offset, offset + length),
        onProgress,
      });
      if (damaged.length === 0) return undefined;
      const log = { path, file, fileId: { dev, ino }, bytes: verification.bytes };
      const damagedPath = await moveDamage(system, log, damaged);
      return { ...verification, damagedPath };
    } finally {
      await lock.release();
    }
  });
}

/** Adds a range that follows all others. */
function addRange(ranges: Range[], start: number, end: number): void {
  const last = ranges.at(-1);
  if (last?.end === start) last.end = end;
  else ranges.push({ start, end });
}

/** A log that is locked and has been read. */
interface ReadLog {
  readonly path: string;
  readonly file: OpenFile;
  readonly fileId: FileId;
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
  throwIfChanged(fs, log);
  // An interrupted repair may have left a copy.
  await removeIfPresent(fs, copyPath);
  try {
    const checksum = await copyRanges(fs, file, damaged, copyPath);
    const wanted = `${path}.damaged-${checksum.toString(16)}`;
    const damagedPath = await unusedPath(fs, wanted, file, damaged);
    await fs.rename(copyPath, damagedPath);
    await syncFolder(fs, dirname(path));

    await copyRanges(fs, file, whole, copyPath);
    throwIfChanged(fs, log);
    await fs.rename(copyPath, path);
    await syncFolder(fs, dirname(path));
    return damagedPath;
  } catch (error) {
    await removeIfPresent(fs, copyPath);
    throw error;
  }
}

/** The lock is on an inode: before this repair took it, another one may have replaced the file. */
function throwIfChanged(fs: FileSystem, { path, fileId, bytes }: ReadLog): void {
  if (sizeOf(fs, path, fileId) !== bytes) throw faults.changed();
}

/** Copies bytes to a new file with the same owner and mode. Resolves to their CRC-32. */
async function copyRanges(
  fs: FileSystem,
  from: OpenFile,
  ranges: readonly Range[],
  path: string,
): Promise<number> {
  const { mode, uid, gid } = await from.stat();
  // O_EXCL: a user who can write to the folder must not be able to redirect the copy by a link.
  const to = await fs.open(path, O_WRONLY | O_CREAT | O_EXCL | O_DSYNC, mode & 0o777);
  try {
    const created = await to.stat();
    if (created.uid !== uid || created.gid !== gid) await to.chown(uid, gid);
    if (((created.mode ^ mode) & 0o777) !== 0) await to.chmod(mode & 0o777);
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
