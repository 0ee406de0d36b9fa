import type { Stats } from 'node:fs';

import { chunksOf, keepAside, type Range } from './aside.js';
import { faults, toStoreError } from './errors.js';
import {
  createFile,
  openToRead,
  sizeOf,
  statRegularFile,
  writeAll,
  type FileId,
  type FileSystem,
  type OpenFile,
  type System,
} from './files.js';
import { createIdIndex } from './ids.js';
import { acquireLock } from './lock.js';
import { checkLines } from './recover.js';

export interface Repair {
  readonly plants: number;
  readonly damagedLines: number;
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
  onProgress?: (bytes: number, totalBytes: number) => void,
): Promise<Repair | undefined> {
  try {
    const file = await openToRead(system, givenPath);
    try {
      return await repairFile(system, givenPath, file, onProgress);
    } finally {
      await file.close();
    }
  } catch (error) {
    throw toStoreError(givenPath, error);
  }
}

async function repairFile(
  system: System,
  givenPath: string,
  file: OpenFile,
  onProgress?: (bytes: number, totalBytes: number) => void,
): Promise<Repair | undefined> {
  const { dev, ino, size } = await statRegularFile(file);
  const path = await system.realpath(givenPath);
  const lock = await acquireLock(system, path, ino);
  try {
    const index = createIdIndex();
    const ranges: Range[] = [];
    let damagedLines = 0;
    let bytes = 0;
    for await (const { end, damaged, tail } of checkLines(file, index)) {
      for (const { offset, bytes } of damaged) addRange(ranges, offset, offset + bytes.length);
      damagedLines += damaged.length;
      bytes = end + (tail?.length ?? 0);
      onProgress?.(end, Number(size));
    }
    if (damagedLines === 0) return undefined;
    const log = { path, file, fileId: { dev, ino }, bytes };
    return { plants: index.size, damagedLines, damagedPath: await moveDamage(system, log, ranges) };
  } finally {
    await lock.release();
  }
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
  throwIfChanged(fs, log);
  const damagedPath = await keepAside(fs, path, file, 'damaged', damaged);
  await createFile(fs, `${path}.repair.new`, async (copy) => {
    await giveTo(copy, await file.stat());
    for await (const chunk of chunksOf(file, whole)) await writeAll(fs, copy, chunk);
    throwIfChanged(fs, log);
    return path;
  });
  return damagedPath;
}

/** The lock is on an inode: before this repair took it, another one may have replaced the file. */
function throwIfChanged(fs: FileSystem, { path, fileId, bytes }: ReadLog): void {
  if (sizeOf(fs, path, fileId) !== bytes) throw faults.changed();
}

/** Gives a new file the owner and the mode of another one. */
async function giveTo(file: OpenFile, { mode, uid, gid }: Stats): Promise<void> {
  const created = await file.stat();
  if (created.uid !== uid || created.gid !== gid) await file.chown(uid, gid);
  if (((created.mode ^ mode) & 0o777) !== 0) await file.chmod(mode & 0o777);
}
