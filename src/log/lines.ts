import { faults } from './errors.js';
import type { OpenFile } from './files.js';
import { MAX_RECORD_BYTES, NEWLINE } from './record.js';

/** A part of a log. The parts follow each other without a gap, and together are the whole file. */
export type Part = Lines | LongLine | (TornTail & { readonly kind: 'torn tail' });

/** Whole lines, each with its newline. The buffer is used again when the next part is requested. */
export interface Lines {
  readonly kind: 'lines';
  /** The byte offset at which the part starts. */
  readonly offset: number;
  readonly bytes: Buffer;
}

/** A line that is longer than any record. Only its length is known. */
export interface LongLine {
  readonly kind: 'long line';
  readonly offset: number;
  readonly length: number;
}

/** The bytes after the last newline, of a write that was never completed. */
export interface TornTail {
  readonly offset: number;
  readonly bytes: Buffer;
}

const CHUNK_BYTES = 262_144;
/** Long enough for almost every line. */
const LINE_BYTES = 4_096;

/**
 * Reads a file up to `end`, or to its own end if that comes first. While the caller handles a part,
 * the next one is read. Two buffers of 256 KiB are enough for that; a line that does not fit into
 * one of them gets a larger buffer of its own.
 */
export async function* partsOf(file: OpenFile, end = Infinity): AsyncGenerator<Part, void> {
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
        const lines = takeLines(length);
        reading = readMore();
        yield lines;
      } else {
        if (held === MAX_RECORD_BYTES) yield await skipLine();
        else if (held === buffer.length) buffer = doubled(buffer);
        reading = readMore();
      }
    }
    if (held > 0) yield { kind: 'torn tail', offset, bytes: buffer.subarray(0, held) };
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
  function takeLines(length: number): Lines {
    const lines: Lines = { kind: 'lines', offset, bytes: buffer.subarray(0, length) };
    const rest = buffer.subarray(length, held);
    if (rest.length < CHUNK_BYTES) {
      const full = buffer;
      buffer = spare;
      spare = full.length === CHUNK_BYTES ? full : Buffer.allocUnsafe(CHUNK_BYTES);
    } else buffer = Buffer.allocUnsafe(buffer.length);
    held = rest.copy(buffer);
    offset += length;
    return lines;
  }

  async function skipLine(): Promise<LongLine> {
    const start = offset;
    offset = await endOfLine(file, offset + held);
    held = 0;
    return { kind: 'long line', offset: start, length: offset - start };
  }
}

/** The offset after the next newline, or the end of the file. */
export async function endOfLine(file: OpenFile, start: number): Promise<number> {
  const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let offset = start;
  for (;;) {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, offset);
    const end = buffer.subarray(0, bytesRead).indexOf(NEWLINE) + 1;
    if (end > 0 || bytesRead === 0) return offset + end;
    offset += bytesRead;
  }
}

/** The number of the line that starts at an offset. */
export async function lineAt(file: OpenFile, offset: number): Promise<number> {
  let line = 1;
  for await (const part of partsOf(file, offset)) {
    if (part.kind === 'long line') line++;
    if (part.kind === 'lines') for (const byte of part.bytes) if (byte === NEWLINE) line++;
  }
  return line;
}

/** Reads the line at an offset, with its newline unless the file ends before it. */
export async function readLine(file: OpenFile, offset: number): Promise<Buffer> {
  let buffer: Buffer = Buffer.allocUnsafe(LINE_BYTES);
  let held = 0;
  for (;;) {
    if (held === buffer.length) buffer = doubled(buffer);
    const { bytesRead } = await file.read(buffer, held, buffer.length - held, offset + held);
    held += bytesRead;
    const end = buffer.subarray(0, held).indexOf(NEWLINE) + 1;
    if (end > 0 || bytesRead === 0) return buffer.subarray(0, end || held);
  }
}

function doubled(buffer: Buffer): Buffer {
  if (buffer.length >= MAX_RECORD_BYTES) throw faults.lineTooLong();
  return Buffer.concat([buffer], 2 * buffer.length);
}
