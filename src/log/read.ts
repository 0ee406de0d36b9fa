import { isUtf8 } from 'node:buffer';

import type { NewPlant } from '../plant.js';
import { damages, failures, toStoreError } from './errors.js';
import { nodeFileSystem, openToRead, statRegularFile, type LogFile } from './file.js';
import { toBigInt } from './id.js';
import { lineAt, partsOf, type Part } from './lines.js';
import { decodeRecord, RecordReader } from './record.js';

/**
 * Reads the plants of a log in order, without changing or locking it. Bytes after the last newline
 * were never acknowledged and are skipped.
 *
 * @throws {@link PlantStoreError} `damaged` at the first line that is not a record; `unavailable` if
 * the file cannot be read.
 */
export async function* readPlants(path: string): AsyncGenerator<NewPlant> {
  let file: LogFile | undefined;
  try {
    const opened = await openToRead(nodeFileSystem, path);
    file = opened;
    const { size } = await statRegularFile(file);
    yield* plantsIn(partsOf(file, Number(size)), async (offset) => {
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
 * Decodes the plants in parts of a log. Throws what `damageAt` returns for the offset of the first
 * line that is not a record.
 */
export async function* plantsIn(
  parts: AsyncIterable<Part>,
  damageAt: (offset: number) => Error | Promise<Error>,
): AsyncGenerator<NewPlant> {
  for await (const part of parts) {
    if (part.kind === 'torn tail') return;
    if (part.kind === 'long line') throw await damageAt(part.offset);
    const { bytes, offset } = part;
    const reader = new RecordReader(bytes);
    for (let start = 0; start < bytes.length;) {
      const end = reader.read(start);
      const line = bytes.subarray(start, end);
      if (end === 0 || !isUtf8(line)) throw await damageAt(offset + start);
      yield { id: toBigInt(reader.id), ...decodeRecord(line) };
      start = end;
    }
  }
}
