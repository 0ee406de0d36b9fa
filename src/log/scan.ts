import { isUtf8 } from 'node:buffer';

import type { LogFile } from './file.js';
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

/** The bytes after the last newline, of a write that was never completed. */
export interface TornTail {
  readonly offset: number;
  readonly bytes: Buffer;
}

/** The longest line of a log with its newline, in bytes. */
export const MAX_RECORD_BYTES = 134_217_728;
const CHUNK_BYTES = 262_144;
const COPY_BYTES = 1_048_576;
/** Long enough for almost every line. */
const LINE_BYTES = 4_096;

/**
 * Reads the log from its start, checks every line, and resolves to the torn tail. The next chunk is
 * read while the lines of one are checked.
 */
export async function scan(file: LogFile, listener: ScanListener): Promise<TornTail> {
  /** The first `held` bytes are those at `offset` in the file: the start of an incomplete line. */
  let buffer: Buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let spare: Buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let offset = 0;
  let held = 0;
  let line = 1;
  let reading = readMore();
  try {
    for (;;) {
      const { bytesRead } = await reading;
      if (bytesRead === 0) return { offset, bytes: buffer.subarray(0, held) };
      held += bytesRead;
      const end = buffer.subarray(0, held).lastIndexOf(NEWLINE) + 1;
      if (end === 0) {
        if (held === MAX_RECORD_BYTES) await skipLine();
        else if (held === buffer.length) buffer = doubled(buffer);
        reading = readMore();
      } else {
        const lines = takeLines(end);
        reading = readMore();
        checkLines(lines, offset - end);
      }
      listener.onProgress(offset);
    }
  } finally {
    await Promise.allSettled([reading]);
  }

  function readMore(): ReturnType<LogFile['read']> {
    return file.read(buffer, held, buffer.length - held, offset + held);
  }

  /** Returns the lines before `end`, and moves the bytes after them to the other buffer. */
  function takeLines(end: number): Buffer {
    const full = buffer;
    buffer = held - end < spare.length ? spare : Buffer.allocUnsafe(full.length);
    spare = full;
    held = full.copy(buffer, 0, end, held);
    offset += end;
    return full.subarray(0, end);
  }

  function checkLines(lines: Buffer, linesOffset: number): void {
    const reader = new RecordReader(lines);
    const allUtf8 = isUtf8(lines);
    for (let start = 0; start < lines.length; line++) {
      const recordEnd = reader.read(start);
      const lineEnd = recordEnd || lines.indexOf(NEWLINE, start) + 1;
      const length = lineEnd - start;
      const reason =
        recordEnd === 0
          ? NOT_A_RECORD
          : !allUtf8 && !isUtf8(lines.subarray(start, lineEnd))
            ? 'it is not valid UTF-8'
            : listener.onRecord(reader.id, linesOffset + start);
      if (reason) listener.onDamage({ line, offset: linesOffset + start, length, reason });
      start = lineEnd;
    }
  }

  /** Skips a line that is longer than any record. */
  async function skipLine(): Promise<void> {
    const length = (await endOfLine(file, offset + held, buffer)) - offset;
    listener.onDamage({ line, offset, length, reason: 'it is longer than any record' });
    line++;
    offset += length;
    held = 0;
  }
}

/** The offset after the next newline, or the end of the file. */
async function endOfLine(file: LogFile, start: number, buffer: Buffer): Promise<number> {
  let offset = start;
  for (;;) {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, offset);
    const end = buffer.subarray(0, bytesRead).indexOf(NEWLINE) + 1;
    if (end > 0 || bytesRead === 0) return offset + end;
    offset += bytesRead;
  }
}

/** The number of the line that starts at an offset. */
export async function lineAt(file: LogFile, offset: number): Promise<number> {
  let line = 1;
  for await (const chunk of chunksOf(file, [{ start: 0, end: offset }]))
    for (const byte of chunk) if (byte === NEWLINE) line++;
  return line;
}

/** Reads the line at an offset, with its newline unless the file ends before it. */
export async function readLine(file: LogFile, offset: number): Promise<Buffer> {
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
  if (buffer.length >= MAX_RECORD_BYTES) throw new RangeError('a line is longer than any record');
  return Buffer.concat([buffer], 2 * buffer.length);
}

/** The bytes of a file from `start` up to, but not including, `end`. */
export interface Range {
  readonly start: number;
  end: number;
}

/**
 * Reads ranges of a file. Every chunk but the last is full, however short the ranges are, because
 * each may become a durable write.
 */
export async function* chunksOf(file: LogFile, ranges: readonly Range[]): AsyncGenerator<Buffer> {
  const buffer = Buffer.allocUnsafe(COPY_BYTES);
  let held = 0;
  for (const { start, end } of ranges) {
    for (let at = start; at < end;) {
      const length = Math.min(buffer.length - held, end - at);
      const { bytesRead } = await file.read(buffer, held, length, at);
      if (bytesRead === 0) throw new Error('the log was truncated while it was read');
      at += bytesRead;
      held += bytesRead;
      if (held === buffer.length) {
        yield buffer;
        held = 0;
      }
    }
  }
  if (held > 0) yield buffer.subarray(0, held);
}
