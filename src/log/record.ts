import { crc32 as crc32OfText } from 'node:zlib';

import type { NewPlant, Plant } from '../plant.js';
import { crc32 } from './crc32.js';

export const NEWLINE = 0x0a;

/** The line of the log that holds a plant, with its newline. */
export function encodeRecord({ id, name, tag }: NewPlant): string {
  const tagMember = tag === undefined ? '' : `,"tag":${JSON.stringify(tag)}`;
  const members = `{"id":${id},"name":${JSON.stringify(name)}${tagMember}`;
  return `${members},"crc32":${crc32OfText(members)}}\n`;
}

/** The plant in a line that a {@link RecordReader} has read. */
export function decodeRecord(line: Buffer): Plant {
  const { name, tag } = JSON.parse(line.toString('utf8')) as Plant;
  return tag === undefined ? { name } : { name, tag };
}

/** Reads the lines of the log, byte by byte and without making objects of them. */
export interface RecordReader {
  /**
   * Reads the record that starts at `start`. Returns where its line ends, past the newline, or 0
   * if it is not a whole record.
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
/** How many digits a `number` holds exactly, whatever they are. */
const EXACT_DIGITS = 15;
const MAX_DIGITS = 19;

export function createRecordReader(): RecordReader {
  const id = new Int32Array(2);
  /** The words of the number that was read last. */
  let low = 0;
  let high = 0;

  // Every part takes where it starts and returns where it ends, or 0 if it is not there.

  function read(bytes: Buffer, start: number): number {
    let at = literal(bytes, start, ID);
    at = at && int64(bytes, at);
    at = at && literal(bytes, at, NAME);
    at = at && string(bytes, at);
    const tag = at && literal(bytes, at, TAG);
    if (tag) at = string(bytes, tag);
    at = at && checksum(bytes, at, start);
    return at && literal(bytes, at, END);
  }

  function int64(bytes: Buffer, start: number): number {
    const negative = bytes[start] === MINUS;
    const end = digits(bytes, negative ? start + 1 : start);
    const isZero = high === 0 && low === 0;
    const isMin = high === MIN_HIGH && low === 0;
    if (negative ? isZero : isMin) return 0;
    if (high >= MIN_HIGH && !isMin) return 0;
    id[LOW] = negative ? -low : low;
    id[HIGH] = negative ? -high - Number(low > 0) : high;
    return end;
  }

  /** The sum of all that came before it; a line may be without one. */
  function checksum(bytes: Buffer, start: number, recordStart: number): number {
    const sum = literal(bytes, start, CRC32);
    if (sum === 0) return start;
    const end = digits(bytes, sum);
    return high === 0 && low === crc32(bytes, recordStart, start) ? end : 0;
  }

  /** A number as `String` writes it: no zero before other digits. */
  function digits(bytes: Buffer, start: number): number {
    let at = start;
    let value = 0;
    for (const exactEnd = start + EXACT_DIGITS; at < exactEnd && isDigit(bytes[at]); at++)
      value = 10 * value + (bytes[at] as number) - ZERO;
    low = value >>> 0;
    high = (value - low) / WORD;
    for (; isDigit(bytes[at]); at++) {
      const sum = 10 * low + (bytes[at] as number) - ZERO;
      low = sum >>> 0;
      high = 10 * high + (sum - low) / WORD;
    }
    const count = at - start;
    const isNumber = count === 1 || (count <= MAX_DIGITS && bytes[start] !== ZERO);
    return count > 0 && isNumber ? at : 0;
  }

  return { read, id };
}

function literal(bytes: Buffer, start: number, expected: Buffer): number {
  for (let i = 0; i < expected.length; i++) if (bytes[start + i] !== expected[i]) return 0;
  return start + expected.length;
}

/** A string whose opening quote has been read. */
function string(bytes: Buffer, start: number): number {
  let at = start;
  for (;;) {
    const byte = bytes[at++] ?? 0;
    if (byte === QUOTE) return at;
    if (byte < FIRST_PRINTABLE) return 0;
    if (byte === BACKSLASH) {
      at = escape(bytes, at);
      if (at === 0) return 0;
    }
  }
}

function escape(bytes: Buffer, start: number): number {
  if (bytes[start] !== LOWER_U) return ESCAPABLE.includes(bytes[start] ?? 0) ? start + 1 : 0;
  const end = start + 5;
  for (let at = start + 1; at < end; at++) if (!HEX_DIGITS.includes(bytes[at] ?? 0)) return 0;
  return end;
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= ZERO && byte <= NINE;
}
