import { crc32 } from 'node:zlib';

import type { NewPlant, Plant } from '../plant.js';

export const NEWLINE = 0x0a;

/** The line of the log that holds a plant, with its newline. */
export function encodeRecord({ id, name, tag }: NewPlant): string {
  const tagMember = tag === undefined ? '' : `,"tag":${JSON.stringify(tag)}`;
  const members = `{"id":${id},"name":${JSON.stringify(name)}${tagMember}`;
  return `${members},"crc32":${crc32(members)}}\n`;
}

/** The plant in a line that a {@link RecordReader} has read. */
export function decodeRecord(line: Buffer): Plant {
  const { name, tag } = JSON.parse(line.toString('utf8')) as Plant;
  return tag === undefined ? { name } : { name, tag };
}

/** Reads the lines of the log, byte by byte and without making objects of them. */
export interface RecordReader {
  /**
   * Reads the record that starts at `start`; a newline must follow somewhere. Returns where its
   * line ends, past the newline, or 0 if it is not a whole record.
   */
  read(bytes: Buffer, start: number): number;
  /** The low and the high word of the id of the record that was read last. */
  readonly id: Int32Array;
}

const ID = Buffer.from('{"id":');
const NAME = Buffer.from(',"name":"');
const TAG = Buffer.from(',"tag":"');
const CRC32 = Buffer.from(',"crc32":');
const END = Buffer.from('}\n');

const QUOTE = 0x22;
const MINUS = 0x2d;
const ZERO = 0x30;
const NINE = 0x39;
const BACKSLASH = 0x5c;
const LOWER_U = 0x75;
const FIRST_PRINTABLE = 0x20;
const ESCAPABLE = Buffer.from('"\\/bfnrt');
const HEX_DIGITS = Buffer.from('0123456789abcdefABCDEF');

/** Where the words of an id stand in an array. */
export const LOW = 0;
export const HIGH = 1;
const WORD = 2 ** 32;
/** The high word of -2^63, without its sign. */
const MIN_HIGH = 2 ** 31;
const MAX_DIGITS = 19;

export function createRecordReader(): RecordReader {
  const id = new Int32Array(2);
  let bytes: Buffer = Buffer.alloc(0);
  let at = 0;
  let low = 0;
  let high = 0;

  function read(source: Buffer, start: number): number {
    bytes = source;
    at = start;
    const isRecord =
      literal(ID) &&
      int64() &&
      literal(NAME) &&
      string() &&
      (!literal(TAG) || string()) &&
      checksum(start) &&
      literal(END);
    return isRecord ? at : 0;
  }

  /** Reads exactly these bytes, or nothing. */
  function literal(expected: Buffer): boolean {
    for (let i = 0; i < expected.length; i++) if (bytes[at + i] !== expected[i]) return false;
    at += expected.length;
    return true;
  }

  /** Reads digits into `low` and `high`, as `String` writes a number: no zero before others. */
  function digits(): boolean {
    const first = at;
    low = 0;
    high = 0;
    for (let byte = byteAt(at); byte >= ZERO && byte <= NINE; byte = byteAt(++at)) {
      const sum = low * 10 + byte - ZERO;
      low = sum >>> 0;
      high = high * 10 + (sum - low) / WORD;
    }
    const count = at - first;
    return count === 1 || (count > 1 && count <= MAX_DIGITS && bytes[first] !== ZERO);
  }

  function int64(): boolean {
    const negative = bytes[at] === MINUS;
    if (negative) at++;
    if (!digits()) return false;
    const isZero = high === 0 && low === 0;
    const isMin = high === MIN_HIGH && low === 0;
    if (negative ? isZero : isMin) return false;
    if (high >= MIN_HIGH && !isMin) return false;
    id[LOW] = negative ? -low : low;
    id[HIGH] = negative ? -high - Number(low > 0) : high;
    return true;
  }

  /** Reads a string whose opening quote has been read. */
  function string(): boolean {
    for (;;) {
      const byte = byteAt(at++);
      if (byte === QUOTE) return true;
      if (byte < FIRST_PRINTABLE) return false;
      if (byte === BACKSLASH && !escape()) return false;
    }
  }

  function escape(): boolean {
    const byte = byteAt(at++);
    if (byte !== LOWER_U) return ESCAPABLE.includes(byte);
    const end = at + 4;
    while (at < end && HEX_DIGITS.includes(byteAt(at))) at++;
    return at === end;
  }

  /** Reads the checksum of all that came before it; a line may be without one. */
  function checksum(start: number): boolean {
    const end = at;
    if (!literal(CRC32)) return true;
    return digits() && high === 0 && low === crc32(bytes.subarray(start, end));
  }

  function byteAt(position: number): number {
    return bytes[position] as number;
  }

  return { read, id };
}
