import { fileErrors } from './errors.js';
import type { OpenFile } from './files.js';
import { isTornRecord, linesIn, MAX_RECORD_BYTES, NEWLINE, type Line } from './record.js';

/** Lines that were read together. */
export interface Part {
  /** The byte offset at which the first one starts. */
  readonly offset: number;
  /** Their bytes. */
  readonly bytes: Buffer;
  readonly lines: readonly Line[];
  /** The byte offset at which the last one ends. */
  readonly end: number;
  /** Bytes behind the last line of the file: of a write that is in progress, or was never completed. */
  readonly torn: Buffer;
}

/**
 * A text of this length is an ordinary object for V8. With 256 KiB, which it puts into its space for large objects,
 * opening a log takes 1.2 times as long.
 */
const CHUNK_BYTES = 114_688;

/**
 * Reads the lines of a file up to `end`, or to its own end if that comes first. Each part begins where the last one
 * ends. What follows the last newline comes on its own: a last line without its newline, or a torn one.
 *
 * @throws RangeError that names the byte offset of a line longer than {@link MAX_RECORD_BYTES}.
 */
export async function* partsOf(file: OpenFile, end = Infinity): AsyncGenerator<Part, void> {
  let offset = 0;
  /** The start of the line at `offset`, as far as it has been read. */
  let start: Buffer = Buffer.alloc(0);
  for (;;) {
    if (start.length === MAX_RECORD_BYTES) throw fileErrors.lineTooLong(offset);
    // Doubled while a line goes on, so that copying its start takes linear time.
    const size = Math.max(CHUNK_BYTES, Math.min(2 * start.length, MAX_RECORD_BYTES));
    const buffer = Buffer.allocUnsafe(size);
    start.copy(buffer);
    const free = buffer.subarray(start.length, end - offset);
    const bytesRead = await file.read(free, offset + start.length);
    if (bytesRead === 0) break;
    const filled = buffer.subarray(0, start.length + bytesRead);
    const bytes = filled.subarray(0, filled.lastIndexOf(NEWLINE) + 1);
    if (bytes.length > 0) yield partAt(offset, bytes);
    offset += bytes.length;
    start = filled.subarray(bytes.length);
  }
  if (start.length > 0) yield lastPart(offset, start);
}

function partAt(offset: number, bytes: Buffer, torn: Buffer = Buffer.alloc(0)): Part {
  return { offset, bytes, lines: linesIn(bytes), end: offset + bytes.length, torn };
}

/**
 * What follows the last newline: a line that lacks its own, or a torn one. Zeros at the end are torn in either case: a
 * power cut may leave them in place of a newline that is being added.
 */
function lastPart(offset: number, tail: Buffer): Part {
  let end = tail.length;
  while (tail[end - 1] === 0) end--;
  if (isTornRecord(tail.subarray(0, end))) end = 0;
  return partAt(offset, tail.subarray(0, end), tail.subarray(end));
}
