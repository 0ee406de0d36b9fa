import { createHash } from 'node:crypto';
import type { BigIntStats } from 'node:fs';

import { checkLines, type CheckedPart, type ReadingOptions } from './check.js';
import { fileErrors, toStoreError } from './errors.js';
import * as files from './files.js';
import { createIdIndex } from './ids.js';
import { errorOfLine } from './lines.js';
import { acquireLock } from './lock.js';
import { encodeRecord, NEWLINE } from './encode.js';
import type { System } from './system.js';

export interface Repair {
  /** The number of plants in the repaired log. */
  readonly plants: number;
  /** The number of lines that held a plant in another layout and were written again as records. */
  readonly rewritten: number;
  /**
   * The number of lines that were removed: they hold no plant, another plant than was written, or
   * an id that an earlier line has.
   */
  readonly removed: number;
  /** The number of torn bytes after the last line, which were removed, too. */
  readonly torn: number;
  /** The path of the old log. */
  readonly keptIn: string;
}

/**
 * Replaces a log that has damaged lines, or whose last line lacks its newline, with a repaired one.
 * Records are copied byte for byte. A damaged line is written again as a record if it holds a plant
 * whose id no earlier line has. All other damaged lines are left out, and so are torn bytes. If no
 * line is damaged and the last one has its newline, nothing is changed. Torn bytes are then left to
 * the next start, which moves them to a file.
 *
 * The new log is written beside the old one. Once it is durable, the old log gets a second name,
 * and the new log is renamed to its path. So the path always names a whole log, and the old log is
 * kept. Resolves to what was done, or to `undefined` if nothing was changed.
 *
 * @throws PlantStoreError `locked` if a process has the log open; `unavailable` if a file cannot be
 * read or written, is not a log, or has a line of a newer version, or if no plant would be kept.
 * The log is then either unchanged or completely repaired, and the second name may be left.
 */
export async function repairLog(
  system: System,
  givenPath: string,
  options?: ReadingOptions,
): Promise<Repair | undefined> {
  try {
    const file = await files.openToRead(system, givenPath);
    try {
      const fileId = await files.statRegularFile(file);
      const path = await system.realpath(givenPath);
      const lock = await acquireLock(system, path, fileId.ino);
      return await repairFile({ system, file, path, fileId }, options).finally(() =>
        lock.release(),
      );
    } finally {
      // Nothing is written through it, so a failure to close it has no consequences.
      await file.close().catch(() => undefined);
    }
  } catch (error) {
    throw toStoreError(givenPath, error);
  }
}

async function repairFile(
  { system, file, path, fileId }: Pick<files.LockedLog, 'system' | 'file' | 'path' | 'fileId'>,
  options?: ReadingOptions,
): Promise<Repair | undefined> {
  return files.createFile(system, { unfinished: `${path}.repair.new`, path }, async (copy) => {
    await copyOwnerAndMode(system, copy, await file.stat());
    const hash = createHash('sha256');
    let last: CheckedPart | undefined;
    let [damaged, removed] = [0, 0];
    for await (const part of checkLines(file, createIdIndex(), options)) {
      const newer = part.damaged.find(({ isOfNewerVersion }) => isOfNewerVersion);
      if (newer) throw errorOfLine(path, newer);
      hash.update(part.bytes).update(part.torn);
      await copy.append(repaired(part));
      damaged += part.damaged.length;
      removed += part.damaged.filter(({ rewritable }) => !rewritable).length;
      last = part;
    }
    if (last?.isLog === false) throw fileErrors.noLog();
    if (!last || (damaged === 0 && !last.lacksNewline)) return undefined;
    const { plants, end, lacksNewline } = last;
    if (plants === 0) throw fileErrors.nothingToKeep();
    const keptIn = files.nameAfterContent(`${path}.damaged`, hash);
    await files.linkFile(system, path, keptIn);
    // The lock is on an inode: before this repair took the lock, another repair may have replaced
    // the file.
    const torn = last.torn.length;
    if (files.sizeOfSameFile(system, path, fileId) !== end + torn) throw fileErrors.changed();
    const rewritten = damaged - removed + Number(lacksNewline);
    return { plants, rewritten, removed, torn, keptIn };
  });
}

/** The lines of a repaired log. */
function repaired({ offset, bytes, damaged, lacksNewline }: CheckedPart): Buffer {
  const chunks: Buffer[] = [];
  let start = 0;
  for (const line of damaged) {
    const lineStart = line.offset - offset;
    chunks.push(bytes.subarray(start, lineStart));
    if (line.rewritable) chunks.push(Buffer.from(encodeRecord(line.rewritable)));
    start = lineStart + line.length;
  }
  chunks.push(bytes.subarray(start));
  if (lacksNewline) chunks.push(Buffer.of(NEWLINE));
  return Buffer.concat(chunks);
}

/** Gives a new file the owner and the mode of another one. */
async function copyOwnerAndMode(
  system: System,
  file: files.OpenFile,
  { mode, uid, gid }: BigIntStats,
): Promise<void> {
  const { descriptor } = file;
  const created = await file.stat();
  if (created.uid !== uid || created.gid !== gid)
    await system.fchown(descriptor, Number(uid), Number(gid));
  const permissions = mode & 0o777n;
  if ((created.mode & 0o777n) !== permissions) await system.fchmod(descriptor, Number(permissions));
}
