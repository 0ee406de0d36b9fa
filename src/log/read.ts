import { plantOf, type NewPlant, type Plant } from '../plant.js';
import { requirePath, storeErrors, toStoreError } from './errors.js';
import * as files from './files.js';
import type { OpenFile } from './files.js';
import { linesOf } from './lines.js';
import { nodeSystem } from './system.js';

/**
 * Reads the plants of a log in the order in which they were stored. The file is neither locked nor changed, so
 * another process may have it open. What it appends after the first plant has been requested is not read, and
 * neither is an incomplete last line, which was never acknowledged. But a plant that is read may be of a
 * write that fails later, and then it is not stored.
 *
 * The file is closed at the end of a `for await` loop; without one, by `return()`.
 *
 * @throws `PlantStoreError` `damaged` at the first line that is not a record; `unavailable` if
 * the file cannot be read. If a server whose disk is full cuts off a line of which a part was read, that line
 * looks damaged: read the log again.
 * @throws TypeError if `path` is not a string.
 *
 * @example Ids are exact, which they would not be after `JSON.parse`:
 * ```ts
 * for await (const { id, name, tag } of readPlantLog('data/plants.jsonl')) console.log(id, name, tag);
 * ```
 */
export function readPlantLog(path: string): AsyncGenerator<NewPlant> {
  requirePath(path);
  return readLogAt(path);
}

async function* readLogAt(path: string): AsyncGenerator<NewPlant> {
  let file: OpenFile | undefined;
  try {
    file = await files.openToRead(nodeSystem, path);
    const { size } = await files.statRegularFile(file);
    yield* readPlants(path, file, Number(size));
  } catch (error) {
    throw toStoreError(path, error);
  } finally {
    await file?.close();
  }
}

/**
 * Reads the plants of a log that is open, up to a byte offset. Returns the offset at which the last line ends
 * that was read.
 */
export async function* readPlants(
  path: string,
  file: OpenFile,
  end: number,
): AsyncGenerator<NewPlant, number> {
  let read = 0;
  let line = 0;
  for await (const { offset, bytes, lines, end: linesEnd } of linesOf(file, end)) {
    for (const { start, end, id, reason } of lines) {
      line++;
      if (reason !== undefined)
        throw storeErrors.damaged(path, { line, offset: offset + start, reason });
      yield plantOf(id, JSON.parse(bytes.toString('utf8', start, end)) as Plant);
    }
    read = linesEnd;
  }
  return read;
}
