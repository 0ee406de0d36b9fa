import type { Stats } from 'node:fs';

import { faults, toStoreError } from './errors.js';
import {
  createFile,
  openToRead,
  sizeOf,
  statRegularFile,
  writeAll,
  type OpenFile,
  type System,
} from './files.js';
import { createIdIndex } from './ids.js';
import { acquireLock } from './lock.js';
import { encodeRecord, NEWLINE } from './record.js';
import { checkLines, keepAside } from './recover.js';

export interface Repair {
  /** The number of plants in the repaired log. */
  readonly plants: number;
  /** The number of lines that held a plant in another layout and were written again as records. */
  readonly rewritten: number;
  /** The number of lines that were moved to `movedTo`: they hold no plant, or another one than was written. */
  readonly moved: number;
  readonly movedTo: string | undefined;
}

/**
 * Writes each damaged line of a log again as a record if it holds a plant, moves the others to a file beside the
 * log, and keeps all records byte for byte. The log is replaced atomically, once its new content is durable.
 * Resolves to `undefined` if there is nothing to repair.
 *
 * @throws PlantStoreError `locked` if a process has the log open; `unavailable` if a file cannot be
 * read or written, or is not a log. Nothing is changed then.
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
    let bytes = 0;
    let [rewritten, moved] = [0, 0];
    let isLog = true;
    for await (const part of checkLines(file, index)) {
      const withoutPlant = part.damaged.filter(({ plant }) => !plant).length;
      moved += withoutPlant;
      rewritten += part.damaged.length - withoutPlant + Number(part.lacksNewline);
      isLog = part.isLog;
      bytes = part.next;
      onProgress?.(part.end, Number(size));
    }
    if (!isLog) throw faults.noLog();
    if (rewritten + moved === 0) return undefined;

    // The lock is on an inode: before this repair took it, another one may have replaced the file.
    const throwIfChanged = (): void => {
      if (sizeOf(system, path, { dev, ino }) !== bytes) throw faults.changed();
    };
    throwIfChanged();
    const movedTo =
      moved > 0 ? await keepAside(system, path, 'damaged', movedFrom(file)) : undefined;
    await createFile(system, `${path}.repair.new`, async (copy) => {
      await giveTo(copy, await file.stat());
      for await (const chunk of repairedFrom(file)) await writeAll(system, copy, chunk);
      throwIfChanged();
      return path;
    });
    return { plants: index.size, rewritten, moved, movedTo };
  } finally {
    await lock.release();
  }
}

/** The damaged lines that hold no plant. */
async function* movedFrom(file: OpenFile): AsyncGenerator<Buffer> {
  for await (const { damaged } of checkLines(file, createIdIndex()))
    yield Buffer.concat(damaged.filter(({ plant }) => !plant).map(({ bytes }) => bytes));
}

/** All other lines, each of which is a record, and the torn tail. */
async function* repairedFrom(file: OpenFile): AsyncGenerator<Buffer> {
  for await (const { offset, bytes, damaged, lacksNewline } of checkLines(file, createIdIndex())) {
    const parts: Buffer[] = [];
    let start = 0;
    for (const { offset: damagedAt, bytes: line, plant } of damaged) {
      parts.push(bytes.subarray(start, damagedAt - offset));
      if (plant) parts.push(Buffer.from(encodeRecord(plant)));
      start = damagedAt - offset + line.length;
    }
    parts.push(bytes.subarray(start));
    if (lacksNewline) parts.push(Buffer.of(NEWLINE));
    yield Buffer.concat(parts);
  }
}

/** Gives a new file the owner and the mode of another one. */
async function giveTo(file: OpenFile, { mode, uid, gid }: Stats): Promise<void> {
  const created = await file.stat();
  if (created.uid !== uid || created.gid !== gid) await file.chown(uid, gid);
  if (((created.mode ^ mode) & 0o777) !== 0) await file.chmod(mode & 0o777);
}
