import { isUtf8 } from 'node:buffer';

import { storedPlantIn } from '../plant-json.js';
import { isInt64, type StoredPlant } from '../plant.js';
import type { PlantStoreError } from '../store.js';
import { crc32 } from './crc32.js';
import { damageReasons, fileErrors, storeErrors } from './errors.js';
import type { OpenFile } from './files.js';
import { CRC32_MEMBER, NEWLINE } from './encode.js';
import {
  beginsAsLog,
  beginsAsRecord,
  ID_START,
  isTornRecord,
  MAX_RECORD_BYTES,
  parseLine,
  PLAIN_RECORD,
} from './record.js';

/** A line of a log. It is a record unless it has a `damage`. */
export interface Line {
  /** Its number, from 1. */
  readonly number: number;
  /** The byte offset at which it starts. */
  readonly offset: number;
  /** Its length in bytes, with its newline if it has one. */
  readonly length: number;
  /** The id of the plant in it; `undefined` if it holds none. */
  readonly id?: bigint;
  /** Why it is damaged. */
  readonly damage?: string;
  /** The plant in a damaged line that can be written again as a record. */
  readonly rewritable?: StoredPlant;
  /** Whether a newer version has written it. */
  readonly isOfNewerVersion?: boolean;
}

/** Lines that were read together. */
export interface Part {
  /** The byte offset at which the first line starts. */
  readonly offset: number;
  /** The bytes of the lines. */
  readonly bytes: Buffer;
  readonly lines: readonly Line[];
  /** The byte offset at which the last line ends. */
  readonly end: number;
  /**
   * The bytes after the last line of the file. They belong to a write that is in progress or was
   * never completed. Empty in all parts but the last one.
   */
  readonly torn: Buffer;
}

/**
 * How many bytes are read at once. V8 keeps a string of this length among ordinary objects. With
 * 256 KiB, V8 puts the strings into its space for large objects, and opening a log takes 1.2 times
 * as long.
 */
const CHUNK_BYTES = 114_688;

const NONE = Buffer.alloc(0);

/**
 * Reads the lines of a file up to the byte offset `limit`, or to the end of the file if that comes
 * first. Each part begins where the previous one ends. The bytes after the last newline are a part
 * of their own: a last line without a newline, torn bytes, or both.
 *
 * @throws RangeError if a line is longer than {@link MAX_RECORD_BYTES}.
 */
export async function* partsOf(file: OpenFile, limit = Infinity): AsyncGenerator<Part, void> {
  let offset = 0;
  let count = 0;
  /** The beginning of the line at `offset`, as far as it has been read. */
  let carry: Buffer = NONE;
  for (;;) {
    if (carry.length === MAX_RECORD_BYTES) throw fileErrors.lineTooLong(offset);
    // Doubled while a line goes on, so that copying its beginning takes linear time.
    const size = Math.max(CHUNK_BYTES, Math.min(2 * carry.length, MAX_RECORD_BYTES));
    const buffer = Buffer.allocUnsafe(size);
    carry.copy(buffer);
    const free = buffer.subarray(carry.length, limit - offset);
    const bytesRead = await file.read(free, offset + carry.length);
    if (bytesRead === 0) break;
    const filled = buffer.subarray(0, carry.length + bytesRead);
    const bytes = filled.subarray(0, filled.lastIndexOf(NEWLINE) + 1);
    if (bytes.length > 0) {
      const part = partAt(offset, count, bytes);
      count += part.lines.length;
      offset = part.end;
      yield part;
    }
    carry = filled.subarray(bytes.length);
  }
  if (carry.length > 0) yield lastPart(offset, count, carry);
}

function partAt(offset: number, count: number, bytes: Buffer, torn: Buffer = NONE): Part {
  const lines = linesIn(bytes, offset, count);
  return { offset, bytes, lines, end: offset + bytes.length, torn };
}

/**
 * Returns the bytes after the last newline as a part: a line that lacks only its newline, torn
 * bytes, or both. Trailing zeros are always torn: a power cut may leave them where a newline was
 * being appended.
 */
function lastPart(offset: number, count: number, tail: Buffer): Part {
  let lineEnd = tail.length;
  while (tail[lineEnd - 1] === 0) lineEnd--;
  const line = tail.subarray(0, lineEnd);
  if (isTornRecord(line)) return partAt(offset, count, NONE, tail);
  return partAt(offset, count, line, tail.subarray(lineEnd));
}

/**
 * Reads the lines in a buffer. In the file, the buffer begins at the byte offset `offset`, after
 * `count` other lines. The newline of the last line may be missing.
 */
export function linesIn(bytes: Buffer, offset = 0, count = 0): Line[] {
  const lines: Line[] = [];
  const text = bytes.toString('latin1');
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const allUtf8 = isUtf8(bytes);
  for (let start = 0; start < bytes.length;) {
    const number = count + lines.length + 1;
    // A plain record takes 0.2 µs, any other line 4 (Node 20).
    const plain = allUtf8 ? plainRecordAt(start, text, view) : undefined;
    if (plain) {
      const { id, end } = plain;
      lines.push({ number, offset: offset + start, length: end - start, id });
      start = end;
    } else {
      const end = bytes.indexOf(NEWLINE, start) + 1 || bytes.length;
      const content = contentOf(bytes.subarray(start, end));
      lines.push({ number, offset: offset + start, length: end - start, ...content });
      start = end;
    }
  }
  return lines;
}

/** The bytes of a record after its checksum: a brace and the newline. */
const END_BYTES = 2;

/**
 * Returns the id of the record without escapes that begins at an index of a text, and the index at
 * which the record ends. Returns `undefined` if there is no such record.
 */
function plainRecordAt(
  start: number,
  text: string,
  bytes: DataView,
): { readonly id: bigint; readonly end: number } | undefined {
  PLAIN_RECORD.lastIndex = start;
  if (!PLAIN_RECORD.test(text)) return undefined;
  const end = PLAIN_RECORD.lastIndex;
  let sumStart = end - END_BYTES;
  while (isDigit(bytes.getUint8(sumStart - 1))) sumStart--;
  const sum = crc32(bytes, start, sumStart - CRC32_MEMBER.length);
  if (numberAt(sumStart, bytes) !== sum) return undefined;
  const id = int64At(start + ID_START.length, text, bytes);
  return id === undefined ? undefined : { id, end };
}

/**
 * The int64 that begins at an index of a text, before a comma; `undefined` if it is out of range.
 */
function int64At(start: number, text: string, bytes: DataView): bigint | undefined {
  const number = numberAt(start, bytes);
  // Converting a number takes less time than converting text. For a negative id, the number is 0,
  // because the minus sign is no digit.
  if (number > 0 && Number.isSafeInteger(number)) return BigInt(number);
  const id = BigInt(text.slice(start, text.indexOf(',', start)));
  return isInt64(id) ? id : undefined;
}

/**
 * The number whose digits begin at an index, or 0 if no digit is there. Digits are read from the
 * bytes: with groups of the regular expression, opening a log takes 1.3 times as long (Node 20).
 */
function numberAt(start: number, bytes: DataView): number {
  let number = 0;
  let at = start;
  let byte = bytes.getUint8(at);
  while (isDigit(byte)) {
    number = 10 * number + (byte - ZERO);
    at++;
    byte = bytes.getUint8(at);
  }
  return number;
}

const ZERO = 0x30;
const NINE = 0x39;

function isDigit(byte: number): boolean {
  return byte >= ZERO && byte <= NINE;
}

function contentOf(line: Buffer): Pick<Line, 'id' | 'damage' | 'rewritable' | 'isOfNewerVersion'> {
  // Parsing takes 5 µs to find that a line is not JSON, and a file may have 100,000 blank lines.
  if (line[0] === NEWLINE) return { damage: damageReasons.blank };
  const { plant, ...content } = parseLine(line, storedPlantIn);
  if (!plant) return content;
  if (content.damage === undefined) return { id: plant.id };
  return { id: plant.id, damage: content.damage, rewritable: plant };
}

/** A damaged line. Its number is unknown if the lines before it were not read. */
type DamagedLine = Partial<Line> & Pick<Line, 'offset'>;

/** The error of the store for a damaged line. */
export function errorOfLine(
  path: string,
  { number, offset, damage = '', isOfNewerVersion }: DamagedLine,
): PlantStoreError {
  const line =
    number === undefined ? `the line at byte ${offset}` : `line ${number}, at byte ${offset}`;
  return isOfNewerVersion
    ? storeErrors.ofNewerVersion(path, line)
    : storeErrors.damaged(path, line, damage);
}

/**
 * Whether the lines of a part, or its torn bytes, show that their file is a log: they hold a plant,
 * or begin as a record.
 */
export function areOfLog({ offset, bytes, lines, torn }: Part): boolean {
  if (offset === 0 && beginsAsLog(bytes.length > 0 ? bytes : torn)) return true;
  if (torn.length > 0 && beginsAsRecord(torn)) return true;
  return lines.some(
    (line) => line.id !== undefined || beginsAsRecord(bytes.subarray(line.offset - offset)),
  );
}

/** How many bytes are read at first to get one line. Most lines are shorter. */
const LINE_BYTES = 1_024;

/**
 * Reads the line that starts at a byte offset, with its newline. A line without a newline ends at
 * `end`, or at the end of the file if that comes first.
 *
 * @throws RangeError if the line is longer than {@link MAX_RECORD_BYTES}.
 */
export async function lineAt(file: OpenFile, offset: number, end: number): Promise<Buffer> {
  let line: Buffer = Buffer.alloc(0);
  for (;;) {
    if (line.length === MAX_RECORD_BYTES) throw fileErrors.lineTooLong(offset);
    const size = Math.max(LINE_BYTES, Math.min(2 * line.length, MAX_RECORD_BYTES));
    const buffer = Buffer.allocUnsafe(size);
    line.copy(buffer);
    const free = buffer.subarray(line.length, end - offset);
    const bytesRead = await file.read(free, offset + line.length);
    const newline = free.subarray(0, bytesRead).indexOf(NEWLINE);
    if (newline !== -1) return buffer.subarray(0, line.length + newline + 1);
    if (bytesRead === 0) return line;
    line = buffer.subarray(0, line.length + bytesRead);
  }
}
