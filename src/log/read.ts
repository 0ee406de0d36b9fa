import { resolve as absolute } from 'node:path';

import { plantOf, type StoredMembers, type StoredPlant } from '../plant.js';
import { checkLines, type CheckedPart, type ReadingOptions } from './check.js';
import { fileErrors, toStoreError } from './errors.js';
import * as files from './files.js';
import { createIdIndex } from './ids.js';
import { areOfLog, errorOfLine, partsOf } from './lines.js';
import { nodeSystem, type System } from './system.js';

/**
 * Reads the plants of a log in the order in which they were stored. The file is neither locked nor
 * changed, so another process may have it open. What that process appends after the first plant has
 * been requested is not read. An incomplete last line, which was never acknowledged, is not read
 * either. A plant that is read may belong to a write that fails later, and is then not stored.
 *
 * The file is closed at the end of a `for await` loop; without a loop, by `return()`.
 *
 * @throws `PlantStoreError` `damaged` at the first line that is not a record; `unavailable` if the
 * file cannot be read, is not a log, has a line of a newer version, or is truncated meanwhile.
 * While the disk of a server is full, it may cut off a failed write, which looks like a damaged
 * line or a truncated file: read the log again.
 * @throws TypeError if `path` is not a string.
 *
 * @example Ids are exact, which they would not be after `JSON.parse`:
 * ```ts
 * for await (const { id, name, tag } of readPlantLog('data/plants.jsonl')) console.log(id, name, tag);
 * ```
 */
export function readPlantLog(path: string): AsyncGenerator<StoredPlant> {
  const from = absolute(path);
  return withFile(nodeSystem, from, (file, end) =>
    readPlants(from, file, { end, mayBeTorn: true }),
  );
}

/** Checks every line of a log and changes nothing. A server may have the log open. */
export function verifyLog(
  system: System,
  path: string,
  options?: ReadingOptions,
): AsyncGenerator<CheckedPart> {
  return withFile(system, path, (file) => checkLines(file, createIdIndex(), options));
}

async function* withFile<T>(
  system: System,
  path: string,
  read: (file: files.OpenFile, size: number) => AsyncGenerator<T>,
): AsyncGenerator<T> {
  try {
    const file = await files.openToRead(system, path);
    try {
      const { size } = await files.statRegularFile(file);
      yield* read(file, Number(size));
      // The new end of a file that was truncated meanwhile would pass for the end of the log.
      if ((await file.stat()).size < size) throw fileErrors.truncated();
    } finally {
      await file.close();
    }
  } catch (error) {
    throw toStoreError(path, error);
  }
}

/** Up to where the plants of a log are read. */
interface Extent {
  /** A byte offset. */
  readonly end: number;
  /** Whether a write may be in progress there. Otherwise, a line ends at the offset. */
  readonly mayBeTorn: boolean;
}

/**
 * Reads the plants of a log.
 *
 * @throws PlantStoreError `damaged` at the first line that is not a record.
 * @throws Error if the file ends before the extent does.
 */
export async function* readPlants(
  path: string,
  file: files.OpenFile,
  { end, mayBeTorn }: Extent,
): AsyncGenerator<StoredPlant> {
  let read = 0;
  for await (const part of partsOf(file, end)) {
    const { offset, bytes, lines, torn, end: partEnd } = part;
    if (offset === 0 && !areOfLog(part)) throw fileErrors.noLog();
    for (const line of lines) {
      if (line.id === undefined || line.damage !== undefined) throw errorOfLine(path, line);
      const start = line.offset - offset;
      const json = bytes.toString('utf8', start, start + line.length);
      yield plantOf(line.id, JSON.parse(json) as StoredMembers);
    }
    if (torn.length > 0 && !mayBeTorn)
      throw errorOfLine(path, { offset: partEnd, damage: 'it was modified' });
    read = partEnd + torn.length;
  }
  if (read < end) throw fileErrors.truncated();
}
