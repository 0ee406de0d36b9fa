import { isUtf8 } from 'node:buffer';

import type { NewPlant } from '../plant.js';
import { damages, failures, faults, toStoreError } from './errors.js';
import {
  nodeFileSystem,
  openToRead,
  statRegularFile,
  type FileSystem,
  type LogFile,
} from './file.js';
import { toBigInt } from './id.js';
import { lineAt, partsOf, type Part } from './lines.js';
import { decodeRecord, NEWLINE, RecordReader } from './record.js';
import { createSecondReader } from './reread.js';

/**
 * Reads the plants of a log in order, without changing or locking it. Bytes after the last newline
 * were never acknowledged and are skipped.
 *
 * @throws {@link PlantStoreError} `damaged` at the first line that is not a record; `unavailable` if
 * the file cannot be read, or if another process cuts off lines while they are read.
 */
export async function* readPlants(
  path: string,
  fs: FileSystem = nodeFileSystem,
): AsyncGenerator<NewPlant> {
  let file: LogFile | undefined;
  try {
    const opened = await openToRead(fs, path);
    file = opened;
    const { size } = await statRegularFile(file);
    yield* plantsIn(partsOf(file, Number(size)), async (offset, length, bytes) => {
      const secondReader = createSecondReader(opened);
      if (!(await secondReader.confirms({ offset, length }, bytes))) return faults.changed();
      const line = await lineAt(opened, offset);
      return failures.damaged(path, { line, offset, reason: damages.notARecord });
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
