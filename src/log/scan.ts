import { isUtf8 } from 'node:buffer';

import type { LogFile } from './file.js';
import { NEWLINE, RecordReader } from './record.js';

/** A line of the log that is not a whole record. */
export interface Damage {
  /** The first line is 1. */
  readonly line: number;
  /** Where the line starts in the file, in bytes. */
  readonly offset: number;
  /** How long it is, in bytes, with its newline. */
  readonly length: number;
  readonly reason: string;
}

/** Hears what a scan finds, in the order of the file. */
export interface ScanListener {
  /** Hears of a record, by the words of its id. Says why it cannot be in the log, if it cannot. */
  onRecord(id: Int32Array, offset: number): string | undefined;
  onDamage(damage: Damage): void;
  /** Hears how far the scan has come, in bytes, every so often. */
  onProgress(offset: number): void;
}

/** Why a record cannot be in the log whose id an earlier one has. */
export function sameId(earlier: number): string {
  return `its id is that of the line at byte ${earlier}`;
}

/** What follows the last newline: bytes of a write that never came to its end. */
export interface TornTail {
  readonly offset: number;
  readonly bytes: Buffer;
}

/** The longest line that can be in a log, in bytes. */
export const MAX_RECORD_BYTES = 134_217_728;
const CHUNK_BYTES = 262_144;
const COPY_BYTES = 1_048_576;
/** Enough for almost any line. */
const LINE_BYTES = 4_096;

/**
 * Reads the log from its start, checks every line, and resolves to what follows the last one. While
 * the lines of one chunk are checked, the next one is read.
 */
export async function scan(file: LogFile, listener: ScanListener): Promise<TornTail> {
  /** The bytes from `offset` on; the first `held` of them are a line that goes on. */
  let buffer: Buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let spare: Buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let offset = 0;
  let held = 0;
  let line = 1;
  let reading = readOn();
  try {
    for (;;) {
      const { bytesRead } = await reading;
      if (bytesRead === 0) return { offset, bytes: buffer.subarray(0, held) };
      held += bytesRead;
      const end = buffer.subarray(0, held).lastIndexOf(NEWLINE) + 1;
      if (end === 0) {
        if (held === MAX_RECORD_BYTES) await skipLine();
        else if (held === buffer.length) buffer = longer(buffer);
        reading = readOn();
      } else {
        const lines = moveOn(end);
        reading = readOn();
        checkLines(lines, offset - end);
      }
      listener.onProgress(offset);
    }
  } finally {
    await Promise.allSettled([reading]);
  }

  function readOn(): ReturnType<LogFile['read']> {
    return file.read(buffer, held, buffer.length - held, offset + held);
  }

  /** Moves what follows the lines that end at `end` to another buffer, and returns the lines. */
  function moveOn(end: number): Buffer {
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
          ? 'it is not a record, or not the one that was written'
          : !allUtf8 && !isUtf8(lines.subarray(start, lineEnd))
            ? 'it is not UTF-8'
            : listener.onRecord(reader.id, linesOffset + start);
      if (reason) listener.onDamage({ line, offset: linesOffset + start, length, reason });
      start = lineEnd;
    }
  }

  /** Passes over a line that is longer than any record. */
  async function skipLine(): Promise<void> {
    const length = (await endOfLine(file, offset + held, buffer)) - offset;
    listener.onDamage({ line, offset, length, reason: 'it is longer than any record' });
    line++;
    offset += length;
    held = 0;
  }
}

/** Where a line that goes on at an offset ends, past its newline, or where the file does. */
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

/** Reads the line at an offset, with its newline; shorter where the file ends before. */
export async function readLine(file: LogFile, offset: number): Promise<Buffer> {
  let buffer: Buffer = Buffer.allocUnsafe(LINE_BYTES);
  let held = 0;
  for (;;) {
    if (held === buffer.length) buffer = longer(buffer);
    const { bytesRead } = await file.read(buffer, held, buffer.length - held, offset + held);
    held += bytesRead;
    const end = buffer.subarray(0, held).indexOf(NEWLINE) + 1;
    if (end > 0 || bytesRead === 0) return buffer.subarray(0, end || held);
  }
}

function longer(buffer: Buffer): Buffer {
  if (buffer.length >= MAX_RECORD_BYTES) throw new RangeError('a line is longer than any record');
  return Buffer.concat([buffer], 2 * buffer.length);
}

/** Where bytes stand in a file: from `start` up to but not including `end`. */
export interface Range {
  readonly start: number;
  end: number;
}

/** Every chunk but the last is full, however short the ranges are: each becomes one durable write. */
export async function* chunksOf(file: LogFile, ranges: readonly Range[]): AsyncGenerator<Buffer> {
  const buffer = Buffer.allocUnsafe(COPY_BYTES);
  let held = 0;
  for (const { start, end } of ranges) {
    for (let at = start; at < end;) {
      const length = Math.min(buffer.length - held, end - at);
      const { bytesRead } = await file.read(buffer, held, length, at);
      if (bytesRead === 0) throw new Error('the log has become shorter');
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
