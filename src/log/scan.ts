import { isUtf8 } from 'node:buffer';

import { damages, type Damage } from './errors.js';
import type { LogFile } from './file.js';
import type { IdWords } from './id.js';
import { partsOf, type Lines, type TornTail } from './lines.js';
import { NEWLINE, RecordReader } from './record.js';

/** Called by a scan, in the order of the file. */
export interface ScanListener {
  /**
   * Called with the id of a record, which is valid during the call. Returns why the record is damaged, if
   * it is.
   */
  onRecord(id: IdWords, offset: number): string | undefined;
  onDamage(damage: Damage): void;
  /** Called after each chunk with the byte offset up to which all lines have been checked. */
  onProgress(offset: number): void;
}

/** Reads the log from its start, checks every line, and resolves to the torn tail, which may be empty. */
export async function scan(file: LogFile, listener: ScanListener): Promise<TornTail> {
  let line = 1;
  let end = 0;
  for await (const part of partsOf(file)) {
    if (part.kind === 'torn tail') return part;
    if (part.kind === 'lines') {
      checkLines(part);
      end = part.offset + part.bytes.length;
    } else {
      const { offset, length } = part;
      listener.onDamage({ line: line++, offset, length, reason: damages.tooLong });
      end = offset + length;
    }
    listener.onProgress(end);
  }
  return { offset: end, bytes: Buffer.alloc(0) };

  function checkLines({ offset, bytes }: Lines): void {
    const reader = new RecordReader(bytes);
    const allUtf8 = isUtf8(bytes);
    for (let start = 0; start < bytes.length; line++) {
      const recordEnd = reader.read(start);
      const lineEnd = recordEnd || bytes.indexOf(NEWLINE, start) + 1;
      const reason =
        recordEnd === 0
          ? damages.notARecord
          : !allUtf8 && !isUtf8(bytes.subarray(start, lineEnd))
            ? damages.notUtf8
            : listener.onRecord(reader.id, offset + start);
      if (reason)
        listener.onDamage({ line, offset: offset + start, length: lineEnd - start, reason });
      start = lineEnd;
    }
  }
}
