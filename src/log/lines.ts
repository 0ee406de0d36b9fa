import { faults } from './errors.js';
import type { OpenFile } from './files.js';
import { isTornRecord, linesIn, MAX_RECORD_BYTES, NEWLINE, type Line } from './record.js';

/** Lines that were read together. */
export interface Lines {
  /** The byte offset at which the first one starts. */
  readonly offset: number;
  /** Their bytes. The buffer is used again when the next lines are requested. */
  readonly bytes: Buffer;
  readonly lines: readonly Line[];
  /** The byte offset at which the last one ends. */
  readonly end: number;
  /** Bytes behind the last line of the file: of a write that is in progress, or was never completed. */
  readonly torn: Buffer;
}

/**
 * A text of this length is an ordinary object for V8. With 256 KiB, which it allocates one by one, opening a log takes
 * 1.2 times as long.
 */
const CHUNK_BYTES = 114_688;

/**
 * Reads the lines of a file up to `end`, or to its own end if that comes first, without a gap. What follows the
 * last newline comes on its own: a last line without its newline, or a torn one. While the caller handles lines, the
 * next ones are read. Two buffers of 112 KiB are enough for that; only a long line gets a larger one of its own.
 *
 * @throws RangeError that names the byte offset of a line longer than {@link MAX_RECORD_BYTES}.
 */
export async function* linesOf(file: OpenFile, end = Infinity): AsyncGenerator<Lines, void> {
  let chunk: Buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let spare: Buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  /** The first `held` bytes are those at `offset` in the file: the start of an incomplete line. */
  let buffer = chunk;
  let offset = 0;
  let held = 0;
  let reading = readMore();
  try {
    for (;;) {
      const bytesRead = await reading;
      if (bytesRead === 0) break;
      held += bytesRead;
      const start = offset;
      const bytes = buffer.subarray(0, buffer.lastIndexOf(NEWLINE, held - 1) + 1);
      if (bytes.length > 0 || held === buffer.length) {
        const rest = buffer.subarray(bytes.length, held);
        buffer = roomFor(rest);
        held = rest.copy(buffer);
        offset += bytes.length;
      }
      reading = readMore();
      if (bytes.length > 0) yield linesAt(start, bytes);
    }
    if (held > 0) yield lastLine(offset, buffer.subarray(0, held));
  } finally {
    await Promise.allSettled([reading]);
  }

  /** A buffer that the start of a line fills to a half at most, unless it is that of a very long one. */
  function roomFor(start: Buffer): Buffer {
    if (start.length === MAX_RECORD_BYTES) throw faults.lineTooLong(offset);
    const size = Math.min(2 * start.length, MAX_RECORD_BYTES);
    if (size > CHUNK_BYTES) return Buffer.allocUnsafe(size);
    [chunk, spare] = [spare, chunk];
    return chunk;
  }

  function readMore(): ReturnType<OpenFile['read']> {
    const position = offset + held;
    const length = Math.min(buffer.length - held, end - position);
    const read = file.read(buffer, held, length, position);
    // It may fail while the caller handles lines, before it is awaited: that must not end the process.
    read.catch(() => undefined);
    return read;
  }
}

function linesAt(offset: number, bytes: Buffer, torn: Buffer = Buffer.alloc(0)): Lines {
  return { offset, bytes, lines: linesIn(bytes), end: offset + bytes.length, torn };
}

/** A last line without its newline, in place of which a power cut may leave zeros while it is added; or a torn one. */
function lastLine(offset: number, tail: Buffer): Lines {
  let end = tail.length;
  while (tail[end - 1] === 0) end--;
  if (isTornRecord(tail.subarray(0, end))) end = 0;
  return linesAt(offset, tail.subarray(0, end), tail.subarray(end));
}
