import { isUtf8 } from 'node:buffer';

import type { NewPlant } from '../plant.js';
import { damages, storeErrors, faults, toStoreError } from './errors.js';
import {
  nodeSystem,
  openToRead,
  statRegularFile,
  type FileSystem,
  type OpenFile,
} from './files.js';
import { toBigInt } from './id.js';
import { lineAt, partsOf, type Part } from './lines.js';
import { damageOf, decodeRecord, NEWLINE, RecordReader } from './record.js';
import { createSecondReader } from './reread.js';

/**
 * Reads the plants of a log in the order in which they were stored. The file is neither locked nor changed, so
 * another process may have it open. What it appends after the first plant has been requested is not read, and
 * neither are bytes after the last newline, which were never acknowledged. But a plant that is read may be of a
 * write that fails later, and then it is not stored.
 *
 * @throws `PlantStoreError` `damaged` at the first line that is not a record; `unavailable` if
 * the file cannot be read, or if another process cuts off a line of which a part was read.
 *
 * @example Ids are exact, which they would not be after `JSON.parse`:
 * ```ts
 * for await (const { id, name, tag } of readPlantLog('data/plants.jsonl')) console.log(id, name, tag);
 * ```
 */
export function readPlantLog(path: string): AsyncGenerator<NewPlant> {
  return readPlants(nodeSystem, path);
}

/** As {@link readPlantLog}, from the given file system. */
export async function* readPlants(fs: FileSystem, path: string): AsyncGenerator<NewPlant> {
  let file: OpenFile | undefined;
  try {
    const opened = await openToRead(fs, path);
    file = opened;
    const { size } = await statRegularFile(file);
    yield* plantsIn(partsOf(file, Number(size)), async (offset, length, bytes) => {
      const secondReader = createSecondReader(opened);
      if (!(await secondReader.confirms({ offset, length }, bytes))) return faults.changed();
      const line = await lineAt(opened, offset);
      return storeErrors.damaged(path, {
        line,
        offset,
        reason: bytes ? damageOf(bytes) : damages.tooLong,
      });
    });
  } catch (error) {
    throw toStoreError(path, error);
  } finally {
    await file?.close();
  }
}

/**
 * Decodes the plants in parts of a log. Throws what `damageAt` returns for the first line that is not a
 * record: it is called with the offset and the length of that line, and its bytes unless it is longer than
 * any record.
 */
export async function* plantsIn(
  parts: AsyncIterable<Part>,
  damageAt: (offset: number, length: number, line?: Buffer) => Error | Promise<Error>,
): AsyncGenerator<NewPlant> {
  for await (const part of parts) {
    if (part.kind === 'torn tail') return;
    if (part.kind === 'long line') throw await damageAt(part.offset, part.length);
    const { bytes, offset } = part;
    const reader = new RecordReader(bytes);
    for (let start = 0; start < bytes.length;) {
      const recordEnd = reader.read(start);
      const end = recordEnd || bytes.indexOf(NEWLINE, start) + 1;
      const line = bytes.subarray(start, end);
      if (recordEnd === 0 || !isUtf8(line)) throw await damageAt(offset + start, line.length, line);
      yield { id: toBigInt(reader.id), ...decodeRecord(line) };
      start = end;
    }
  }
}
