import type { BigIntStats } from 'node:fs';

import { checkLines, type Checked, type ReadingOptions } from './check.js';
import { fileErrors, toStoreError } from './errors.js';
import * as files from './files.js';
import { createIdIndex, type IdIndex } from './ids.js';
import { acquireLock } from './lock.js';
import { encodeRecord, NEWLINE } from './record.js';
import type { OpenLog } from './recover.js';
import type { System } from './system.js';

export interface Repair {
  /** The number of plants in the repaired log. */
  readonly plants: number;
  /** The number of lines that held a plant in another layout and were written again as records. */
  readonly rewritten: number;
  /** The number of lines that were removed: they hold no plant or another one than was written, or repeat an id. */
  readonly removed: number;
  /** The length of the torn tail, which was removed, too, in bytes. */
  readonly torn: number;
  /** The file that has the damaged lines as they were, and the torn tail, if there are any. */
  readonly keptIn: string | undefined;
}

/**
 * Writes each damaged line of a log again as a record if it holds a plant whose id no earlier line has, removes the
 * others and a torn tail, and keeps undamaged lines byte for byte. A file beside the log keeps all damaged lines as
 * they were, because a line that is written again loses its other members, and the torn tail. The log is replaced
 * atomically, once its new content is durable. Resolves to `undefined` if no line is damaged, and the last one has its
 * newline: a torn tail is left to the next start.
 *
 * @throws PlantStoreError `locked` if a process has the log open; `unavailable` if a file cannot be read or written, or
 * is not a log. The log is then either unchanged or completely repaired, and the file of damaged lines may be left.
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
  { system, file, path, fileId }: Pick<OpenLog, 'system' | 'file' | 'path' | 'fileId'>,
  options?: ReadingOptions,
): Promise<Repair | undefined> {
  const index = createIdIndex();
  let last: Checked | undefined;
  let [damaged, removed] = [0, 0];
  for await (const part of checkLines(file, index, options)) {
    damaged += part.damaged.length;
    removed += part.damaged.filter(({ rewritable }) => !rewritable).length;
    last = part;
  }
  if (last?.isLog === false) throw fileErrors.noLog();
  if (!last || (damaged === 0 && !last.lacksNewline)) return undefined;

  const torn = last.torn.length;
  const size = last.end + torn;
  const keptIn =
    damaged + torn > 0
      ? await files.keepAside(system, path, 'damaged', bytesOf(file, index, 'aside'))
      : undefined;
  await files.createFile(system, `${path}.repair.new`, async (copy) => {
    await giveTo(system, copy, await file.stat());
    for await (const chunk of bytesOf(file, index, 'repaired')) await copy.append(chunk);
    // The lock is on an inode: before this repair took it, another one may have replaced the file.
    if (files.sizeOf(system, path, fileId) !== size) throw fileErrors.changed();
    return path;
  });
  const rewritten = damaged - removed + Number(last.lacksNewline);
  return { plants: index.size, rewritten, removed, torn, keptIn };
}

/** Reads the log once more: what is kept aside may be as large as the log, so it is not kept in memory. */
async function* bytesOf(
  file: files.OpenFile,
  index: IdIndex,
  which: 'repaired' | 'aside',
): AsyncGenerator<Buffer> {
  for await (const part of checkLines(file, index)) yield split(part)[which];
}

/** The lines of a repaired log, and what a file beside it keeps: the damaged lines, and the torn tail. */
function split({ offset, bytes, damaged, lacksNewline, torn }: Checked) {
  const repaired: Buffer[] = [];
  let start = 0;
  for (const { offset: damagedAt, bytes: line, rewritable } of damaged) {
    repaired.push(bytes.subarray(start, damagedAt - offset));
    if (rewritable) repaired.push(Buffer.from(encodeRecord(rewritable)));
    start = damagedAt - offset + line.length;
  }
  repaired.push(bytes.subarray(start));
  if (lacksNewline) repaired.push(Buffer.of(NEWLINE));
  const aside = [...damaged.map((each) => each.bytes), torn];
  return { repaired: Buffer.concat(repaired), aside: Buffer.concat(aside) };
}

/** Gives a new file the owner and the mode of another one. */
async function giveTo(
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
