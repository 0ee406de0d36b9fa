import { isUtf8 } from 'node:buffer';
import { constants } from 'node:fs';

import type { NewPlant } from '../plant.js';
import { failureOf, nodeFileSystem, statOf, type LogFile } from './file.js';
import { HIGH, LOW, NEWLINE, RecordReader, decodeRecord } from './record.js';
import { damagedFailure } from './recovery.js';
import { chunksOf, lineAt } from './scan.js';

/**
 * Reads the plants of a log in their order, without changing or locking it. What follows the last
 * newline was never acknowledged, and is left out.
 *
 * @throws {@link PlantStoreError} `damaged` at the first line that is not a record; `unavailable` if
 * the file cannot be read.
 */
export async function* readPlants(path: string): AsyncGenerator<NewPlant> {
  let file: LogFile | undefined;
  try {
    file = await nodeFileSystem.open(path, constants.O_RDONLY);
    const end = Number((await statOf(file)).size);
    /** The beginning of a line that the next chunk continues, and where it is in the file. */
    let rest: Buffer = Buffer.alloc(0);
    let offset = 0;
    for await (const chunk of chunksOf(file, [{ start: 0, end }])) {
      const bytes = Buffer.concat([rest, chunk]);
      const lines = bytes.subarray(0, bytes.lastIndexOf(NEWLINE) + 1);
      const reader = new RecordReader(lines);
      for (let start = 0; start < lines.length;) {
        const next = reader.read(start);
        if (next === 0 || !isUtf8(lines.subarray(start, next))) {
          const line = await lineAt(file, offset + start);
          const reason = 'it is not a record, or not the one that was written';
          throw damagedFailure(path, { line, offset: offset + start, reason });
        }
        yield { id: idIn(reader), ...decodeRecord(lines.subarray(start, next)) };
        start = next;
      }
      rest = bytes.subarray(lines.length);
      offset += lines.length;
    }
  } catch (error) {
    throw failureOf(path, error);
  } finally {
    await file?.close();
  }
}

function idIn({ id }: RecordReader): bigint {
  WORDS.setInt32(0, id[HIGH] as number);
  WORDS.setInt32(4, id[LOW] as number);
  return WORDS.getBigInt64(0);
}

const WORDS = new DataView(new ArrayBuffer(8));
