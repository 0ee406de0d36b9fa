import { isUtf8 } from 'node:buffer';

import type { LogFile } from './file.js';
import { partsOf, type Lines, type TornTail } from './lines.js';
import { NEWLINE, RecordReader } from './record.js';

/** A line of the log that is not what was written. */
export interface Damage {
  /** The number of the line, from 1. */
  readonly line: number;
  /** The byte offset at which the line starts. */
  readonly offset: number;
  /** The length of the line with its newline, in bytes. */
  readonly length: number;
  readonly reason: string;
}

/** Called by a scan, in the order of the file. */
export interface ScanListener {
  /** Called with the two words of a record's id. Returns why the record is damage, if it is. */
  onRecord(id: Int32Array, offset: number): string | undefined;
  onDamage(damage: Damage): void;
  /** Called after each chunk with the byte offset up to which all lines have been checked. */
  onProgress(offset: number): void;
}

/** The reason if a line is not a record, or not the one that was written. */
export const NOT_A_RECORD = 'it is not a valid record, or its checksum does not match';

/** The reason if a record has the id of the one at byte `earlier`. */
export function repeatedId(earlier: number): string {
  return `it repeats the id of the line at byte ${earlier}`;
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
      listener.onDamage({ line: line++, offset, length, reason: 'it is longer than any record' });
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
          ? NOT_A_RECORD
          : !allUtf8 && !isUtf8(bytes.subarray(start, lineEnd))
            ? 'it is not valid UTF-8'
            : listener.onRecord(reader.id, offset + start);
      if (reason)
        listener.onDamage({ line, offset: offset + start, length: lineEnd - start, reason });
      start = lineEnd;
    }
  }
}
