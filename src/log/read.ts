import { resolve as absolute } from 'node:path';

import { plantOf, type NewPlant, type Plant } from '../plant.js';
import { checkLines, type Checked, type ReadingOptions } from './check.js';
import { fileErrors, storeErrors, toStoreError } from './errors.js';
import * as files from './files.js';
import { createIdIndex } from './ids.js';
import { partsOf } from './lines.js';
import { nodeSystem, type System } from './system.js';

/**
 * Reads the plants of a log in the order in which they were stored. The file is neither locked nor changed, so
 * another process may have it open. What it appends after the first plant has been requested is not read, and
 * neither is an incomplete last line, which was never acknowledged. But a plant that is read may be of a
 * write that fails later, and then it is not stored.
 *
 * The file is closed at the end of a `for await` loop; without one, by `return()`.
 *
 * @throws `PlantStoreError` `damaged` at the first line that is not a record; `unavailable` if the file cannot be read,
 * or is truncated meanwhile. If a server whose disk is full cuts off a failed write, either may happen: read the log
 * again.
 * @throws TypeError if `path` is not a string.
 *
 * @example Ids are exact, which they would not be after `JSON.parse`:
 * ```ts
 * for await (const { id, name, tag } of readPlantLog('data/plants.jsonl')) console.log(id, name, tag);
 * ```
 */
export function readPlantLog(path: string): AsyncGenerator<NewPlant> {
  const from = absolute(path);
  return withFile(nodeSystem, from, (file, size) => readPlants(from, file, size));
}

/** Checks every line of a log and changes nothing. A server may have the log open. */
export function verifyLog(
  system: System,
  path: string,
  options?: ReadingOptions,
): AsyncGenerator<Checked> {
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
      // Otherwise the end of the file would pass for the end of the log.
      if ((await file.stat()).size < size) throw fileErrors.truncated();
    } finally {
      await file.close();
    }
  } catch (error) {
    throw toStoreError(path, error);
  }
}

/** Reads the plants of a log up to a byte offset. Returns the offset at which the last line ends that was read. */
export async function* readPlants(
  path: string,
  file: files.OpenFile,
  end: number,
): AsyncGenerator<NewPlant, number> {
  let read = 0;
  let line = 0;
  for await (const part of partsOf(file, end)) {
    for (const found of part.lines) {
      line++;
      const offset = part.offset + found.start;
      if (found.kind !== 'record') throw storeErrors.damaged(path, line, offset, found.reason);
      const json = part.bytes.toString('utf8', found.start, found.end);
      yield plantOf(found.id, JSON.parse(json) as Plant);
    }
    read = part.end;
  }
  return read;
}
