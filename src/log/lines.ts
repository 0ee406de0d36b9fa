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
  /** The byte offset at which the next ones start, or the end of the file. */
  readonly next: number;
  /** Whether the bytes are no lines: of a write that is in progress, or was never completed. They come last. */
  readonly isTorn: boolean;
}

/**
 * A text of this length is an ordinary object for V8. With 256 KiB, which it allocates one by one, opening a log takes
 * 1.2 times as long.
 */
const CHUNK_BYTES = 114_688;

/**
 * Reads the lines of a file up to `end`, or to its own end if that comes first, without a gap. What follows the
 * last newline comes on its own: a last line without its newline, or a torn one. While the caller handles lines, the
 * next ones are read. Two buffers of 112 KiB are enough for that; a line that does not fit into one of them gets a
 * larger buffer of its own.
 *
 * @throws RangeError that names the byte offset of a line longer than {@link MAX_RECORD_BYTES}.
 */
export async function* linesOf(file: OpenFile, end = Infinity): AsyncGenerator<Lines, void> {
  /** The first `held` bytes are those at `offset` in the file: the start of an incomplete line. */
  let buffer: Buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let spare: Buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let offset = 0;
  let held = 0;
  let reading = readMore();
  try {
    for (;;) {
      const { bytesRead } = await reading;
      if (bytesRead === 0) break;
      const newline = buffer.subarray(held, held + bytesRead).lastIndexOf(NEWLINE);
      const length = newline === -1 ? 0 : held + newline + 1;
      held += bytesRead;
      if (length > 0) {
        const start = offset;
        const bytes = take(length);
        reading = readMore();
        yield parted(start, bytes);
      } else {
        if (held === buffer.length) buffer = doubled(buffer, offset);
        reading = readMore();
      }
    }
    if (held > 0) {
      const tail = buffer.subarray(0, held);
      const line = withoutZeros(tail);
      const next = offset + held;
      yield isTornRecord(line)
        ? { offset, bytes: tail, lines: [], end: offset, next, isTorn: true }
        : { ...parted(offset, line), next };
    }
  } finally {
    await Promise.allSettled([reading]);
  }

  function readMore(): ReturnType<OpenFile['read']> {
    const position = offset + held;
    const length = Math.min(buffer.length - held, end - position);
    const read = file.read(buffer, held, length, position);
    // It may fail while the caller handles a part, before it is awaited: that must not end the process.
    read.catch(() => undefined);
    return read;
  }

  /** Takes the first bytes for the caller, and moves the rest to another buffer. */
  function take(length: number): Buffer {
    const taken = buffer.subarray(0, length);
    const rest = buffer.subarray(length, held);
    if (rest.length < CHUNK_BYTES) {
      const full = buffer;
      buffer = spare;
      spare = full.length === CHUNK_BYTES ? full : Buffer.allocUnsafe(CHUNK_BYTES);
    } else buffer = Buffer.allocUnsafe(buffer.length);
    held = rest.copy(buffer);
    offset += length;
    return taken;
  }
}

function parted(offset: number, bytes: Buffer): Lines {
  const end = offset + bytes.length;
  return { offset, bytes, lines: linesIn(bytes), end, next: end, isTorn: false };
}

/** Without the zeros at the end: a power cut may leave one in place of a newline that was being added. */
function withoutZeros(bytes: Buffer): Buffer {
  let end = bytes.length;
  while (bytes[end - 1] === 0) end--;
  return bytes.subarray(0, end);
}

function doubled(buffer: Buffer, offset: number): Buffer {
  if (buffer.length >= MAX_RECORD_BYTES) throw faults.lineTooLong(offset);
  return Buffer.concat([buffer], Math.min(2 * buffer.length, MAX_RECORD_BYTES));
}
