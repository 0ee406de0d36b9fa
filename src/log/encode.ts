// The global `Buffer` is a getter, which takes time for each plant.
import { Buffer } from 'node:buffer';

import { membersInJson, type StoredPlant } from '../plant.js';
import { crc32 } from './crc32.js';

export const NEWLINE = 0x0a;
/** Precedes the checksum of a record. No string contains it: in JSON, its quotes are escaped. */
export const CRC32_MEMBER = ',"crc32":';

const CRC32_BYTES = Buffer.from(CRC32_MEMBER);
const CLOSING_BRACE = 0x7d;
const ZERO = 0x30;
/** The most bytes that a record has from {@link CRC32_MEMBER} on. */
const MAX_END_BYTES = CRC32_BYTES.length + '4294967295}\n'.length;

/** A growing buffer with the records of some plants: the lines of the log, with their newlines. */
export interface RecordBuffer {
  /** The length of all records together, in bytes. */
  readonly length: number;
  /** The memory that the buffer takes, in bytes. */
  readonly capacity: number;
  /** A view of the records, which is valid until the next `add`. */
  bytes(): Buffer;
  /** Appends the record of a plant. */
  add(plant: StoredPlant): void;
  /** Removes the records from an offset on. */
  truncate(offset: number): void;
}

/**
 * Creates a buffer that has room for `bytes` bytes at first. Encoding into it takes 0.7 µs less for
 * each plant than joining strings, because the checksum is computed from these bytes, and its
 * digits do not become a string (Node 24).
 */
export function createRecordBuffer(bytes: number): RecordBuffer {
  let buffer = Buffer.allocUnsafeSlow(bytes);
  let view = new DataView(buffer.buffer);
  let length = 0;

  function makeRoom(bytes: number): void {
    if (length + bytes <= buffer.length) return;
    // Doubled, so that copying takes time linear in the length.
    const larger = Buffer.allocUnsafeSlow(Math.max(2 * buffer.length, length + bytes));
    buffer.copy(larger, 0, 0, length);
    buffer = larger;
    view = new DataView(larger.buffer);
  }

  return {
    get length() {
      return length;
    },
    get capacity() {
      return buffer.length;
    },
    bytes: () => buffer.subarray(0, length),
    add(plant) {
      const text = textBeforeChecksum(plant);
      makeRoom(Buffer.byteLength(text) + MAX_END_BYTES);
      let end = length + buffer.write(text, length);
      const sum = crc32(view, length, end);
      buffer.set(CRC32_BYTES, end);
      end = writeDigits(sum, buffer, end + CRC32_BYTES.length);
      buffer[end++] = CLOSING_BRACE;
      buffer[end++] = NEWLINE;
      length = end;
    },
    truncate(offset) {
      length = offset;
    },
  };
}

/** Writes a number in decimal. Returns the index after its last digit. */
function writeDigits(number: number, buffer: Buffer, start: number): number {
  let end = start + 1;
  for (let power = 10; number >= power; power *= 10) end++;
  let rest = number;
  for (let at = end - 1; at >= start; at--) {
    // Not `rest % 10`, which takes longer if `rest` has more than 31 bits.
    const tenth = Math.floor(rest / 10);
    buffer[at] = ZERO + rest - 10 * tenth;
    rest = tenth;
  }
  return end;
}

/** Returns the record of a plant. */
export function encodeRecord(plant: StoredPlant): string {
  const records = createRecordBuffer(0);
  records.add(plant);
  return records.bytes().toString();
}

/** The text of a record before `,"crc32"`. The checksum is computed from the bytes of this text. */
export function textBeforeChecksum(plant: StoredPlant): string {
  return recordStart(plant.id) + membersInJson(plant);
}

/** The beginning of every record with this id. */
export function recordStart(id: bigint): string {
  return `{"id":${id},`;
}
