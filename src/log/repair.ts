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
import { createIdIndex, type IdIndex } from './ids.js';
import { linesOf } from './lines.js';
import { acquireLock } from './lock.js';
import { CRC32_MEMBER, encodeRecord, NEWLINE, parseLine } from './record.js';
import { checkLines, keepAside, type Checked, type OnProgress } from './recover.js';

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
  onProgress?: OnProgress,
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
  onProgress?: OnProgress,
): Promise<Repair | undefined> {
  const { dev, ino } = await statRegularFile(file);
  const path = await system.realpath(givenPath);
  const lock = await acquireLock(system, path, ino);
  try {
    const index = await indexOfSigned(file);
    let bytes = 0;
    let [rewritten, moved] = [0, 0];
    let isLog = true;
    for await (const part of checkLines(file, index, onProgress)) {
      const withoutPlant = part.damaged.filter(({ plant }) => !plant).length;
      moved += withoutPlant;
      rewritten += part.damaged.length - withoutPlant + Number(part.lacksNewline);
      isLog = part.isLog;
      bytes = part.next;
    }
    if (!isLog) throw faults.noLog();
    if (rewritten + moved === 0) return undefined;

    // The lock is on an inode: before this repair took it, another one may have replaced the file.
    const throwIfChanged = (): void => {
      if (sizeOf(system, path, { dev, ino }) !== bytes) throw faults.changed();
    };
    throwIfChanged();
    const movedTo =
      moved > 0
        ? await keepAside(system, path, 'damaged', partsOf(file, index, movedFrom))
        : undefined;
    await createFile(system, `${path}.repair.new`, async (copy) => {
      await giveTo(copy, await file.stat());
      for await (const chunk of partsOf(file, index, repairedFrom))
        await writeAll(system, copy, chunk);
      throwIfChanged();
      return path;
    });
    return { plants: index.size, rewritten, moved, movedTo };
  } finally {
    await lock.release();
  }
}

/**
 * An index of the lines with a checksum that matches, which may have been acknowledged: they win over others with
 * their id, which may have been written by hand before them.
 */
async function indexOfSigned(file: OpenFile): Promise<IdIndex> {
  const index = createIdIndex();
  for await (const { offset, bytes, lines } of linesOf(file))
    for (const { start, end, id, plant } of lines) {
      const line = bytes.subarray(start, end);
      const isSigned = plant ? parseLine(line).isSigned : line.includes(CRC32_MEMBER);
      if (id !== undefined && isSigned) index.add(id, offset + start);
    }
  return index;
}

async function* partsOf(
  file: OpenFile,
  index: IdIndex,
  select: (part: Checked) => Buffer,
): AsyncGenerator<Buffer> {
  for await (const part of checkLines(file, index)) yield select(part);
}

/** The damaged lines that are not written again. */
function movedFrom({ damaged }: Checked): Buffer {
  return Buffer.concat(damaged.filter(({ plant }) => !plant).map(({ bytes }) => bytes));
}

/** All other lines, each of which is a record, and the torn tail. */
function repairedFrom({ offset, bytes, damaged, lacksNewline }: Checked): Buffer {
  const parts: Buffer[] = [];
  let start = 0;
  for (const { offset: damagedAt, bytes: line, plant } of damaged) {
    parts.push(bytes.subarray(start, damagedAt - offset));
    if (plant) parts.push(Buffer.from(encodeRecord(plant)));
    start = damagedAt - offset + line.length;
  }
  parts.push(bytes.subarray(start));
  if (lacksNewline) parts.push(Buffer.of(NEWLINE));
  return Buffer.concat(parts);
}

/** Gives a new file the owner and the mode of another one. */
async function giveTo(file: OpenFile, { mode, uid, gid }: Stats): Promise<void> {
  const created = await file.stat();
  if (created.uid !== uid || created.gid !== gid) await file.chown(uid, gid);
  if (((created.mode ^ mode) & 0o777) !== 0) await file.chmod(mode & 0o777);
}
