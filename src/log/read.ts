import { isUtf8 } from 'node:buffer';
import { constants } from 'node:fs';

import type { NewPlant } from '../plant.js';
import { nodeFileSystem, statRegularFile, toStoreError, type LogFile } from './file.js';
import { HIGH, LOW, NEWLINE, RecordReader, decodeRecord } from './record.js';
import { damagedError } from './recovery.js';
import { chunksOf, lineAt, NOT_A_RECORD } from './scan.js';

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
    // O_NONBLOCK: opening a FIFO that has no writer would block forever.
    file = await nodeFileSystem.open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const end = Number((await statRegularFile(file)).size);
    /** The start of a line that the next chunk continues, and its byte offset. */
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
          throw damagedError(path, { line, offset: offset + start, reason: NOT_A_RECORD });
        }
        yield { id: idIn(reader), ...decodeRecord(lines.subarray(start, next)) };
        start = next;
      }
      rest = bytes.subarray(lines.length);
      offset += lines.length;
    }
  } catch (error) {
    throw toStoreError(path, error);
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
