import { isUtf8 } from 'node:buffer';

import { damages, type Damage } from './errors.js';
import type { OpenFile } from './files.js';
import type { IdWords } from './id.js';
import { partsOf, type Lines, type TornTail } from './lines.js';
import { damageOf, NEWLINE, RecordReader } from './record.js';

/** Called by a scan, in the order of the file. */
export interface ScanListener {
  /**
   * Called with the id of a record, which is valid during the call. Returns the byte offset of an earlier
   * record with the same id, if there is one.
   */
  onRecord(id: IdWords, offset: number): number | undefined;
  /**
   * Called with each damaged line, and its bytes unless it is longer than any record. If it returns a
   * promise, the scan waits for it. The bytes are valid until then.
   */
  onDamage(damage: Damage, line?: Buffer): unknown;
  /** Called after each chunk with the byte offset up to which all lines have been checked. */
  onProgress(offset: number): void;
}

/** Reads the log from its start, checks every line, and resolves to the torn tail, which may be empty. */
export async function scan(file: OpenFile, listener: ScanListener): Promise<TornTail> {
  let line = 1;
  let end = 0;
  for await (const part of partsOf(file)) {
    if (part.kind === 'torn tail') return part;
    if (part.kind === 'lines') {
      const { offset, bytes } = part;
      // Only damaged lines are waited for: a promise for each line would take longer than its check.
      for (const damage of damagesIn(part)) {
        const start = damage.offset - offset;
        await listener.onDamage(damage, bytes.subarray(start, start + damage.length));
      }
      end = offset + bytes.length;
    } else {
      const { offset, length } = part;
      await listener.onDamage({ line: line++, offset, length, reason: damages.tooLong });
      end = offset + length;
    }
    listener.onProgress(end);
  }
  return { offset: end, bytes: Buffer.alloc(0) };

  function* damagesIn({ offset, bytes }: Lines): Generator<Damage, void> {
    const reader = new RecordReader(bytes);
    const allUtf8 = isUtf8(bytes);
    for (let start = 0; start < bytes.length; line++) {
      const recordEnd = reader.read(start);
      const lineEnd = recordEnd || bytes.indexOf(NEWLINE, start) + 1;
      const damage =
        recordEnd === 0
          ? { reason: damageOf(bytes.subarray(start, lineEnd)) }
          : !allUtf8 && !isUtf8(bytes.subarray(start, lineEnd))
            ? { reason: damages.notUtf8 }
            : repetitionOf(listener.onRecord(reader.id, offset + start));
      if (damage) yield { line, offset: offset + start, length: lineEnd - start, ...damage };
      start = lineEnd;
    }
  }
}

function repetitionOf(earlier: number | undefined): Pick<Damage, 'reason' | 'earlier'> | undefined {
  return earlier === undefined ? undefined : { reason: damages.repeatedId(earlier), earlier };
}
