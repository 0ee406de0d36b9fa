import { crc32 } from 'node:zlib';

import { parseObject, type ParsedObject, type PlantFault } from '../plant-json.js';
import { membersPattern, type StoredPlant } from '../plant.js';
import { CRC32_MEMBER, encodeRecord, textBeforeChecksum } from './encode.js';
import { damageReasons } from './errors.js';

/**
 * The longest line of a log with its newline, in bytes: twice the largest body, so the plant of
 * every body fits.
 */
export const MAX_RECORD_BYTES = 134_217_728;

/** The first bytes of a record. */
export const ID_START = Buffer.from('{"id":');
const BYTE_ORDER_MARK = Buffer.from('\ufeff');

/**
 * Matches the layout of a record without escapes, at `lastIndex`. Almost all records have this
 * layout. The id may be out of range, and the checksum may be wrong. The text is Latin-1, so that
 * an index is a byte offset.
 */
export const PLAIN_RECORD = new RegExp(
  String.raw`\{"id":(?:-?[1-9]\d{0,18}|0)${membersPattern()}${CRC32_MEMBER}(?:0|[1-9]\d*)\}\n`,
  'y',
);

/** What a line holds. */
export type LineContent<Plant> =
  | {
      readonly plant: Plant;
      /** Why the line is damaged; `undefined` if it is the record of the plant. */
      readonly damage?: string;
    }
  | {
      readonly plant?: undefined;
      /** Why the line holds no plant. */
      readonly damage: string;
      /** Whether a newer version has written the line, and nothing has changed it since. */
      readonly isOfNewerVersion: boolean;
    };

/**
 * Parses a line in any JSON layout. If the line has a `crc32`, it must be that of the plant's
 * record. The newline may be missing. `plantIn` takes the plant from the object in the line: it is
 * `storedPlantIn` for a line of the log, and `newPlantIn` for a line that is imported.
 */
export function parseLine<Plant extends StoredPlant>(
  line: Buffer,
  plantIn: (object: ParsedObject) => Plant,
): LineContent<Plant> {
  const json = withoutByteOrderMark(line);
  let plant: Plant;
  let checksum: unknown;
  try {
    const object = parseObject(json);
    plant = plantIn(object);
    checksum = object.value.crc32;
  } catch (error) {
    const fault = error as PlantFault;
    // The line is JSON, so its object may be a plant of a newer version.
    if (fault.kind === 'plant') return withoutPlant(json, fault.message);
    return { damage: fault.message, isOfNewerVersion: false };
  }
  if (checksum === undefined) return { plant, damage: damageReasons.noChecksum };
  // zlib's function takes a string. ./crc32.js is for the many records that need no parsing.
  if (checksum !== crc32(textBeforeChecksum(plant)))
    return withoutPlant(json, damageReasons.wrongChecksum);
  if (json.length < line.length) return { plant, damage: damageReasons.byteOrderMark };
  const text = json.toString();
  const record = encodeRecord(plant);
  if (text === record || text === record.slice(0, -1)) return { plant };
  return { plant, damage: text.includes('\r') ? damageReasons.crlf : damageReasons.otherLayout };
}

function withoutByteOrderMark(line: Buffer): Buffer {
  const start = line.subarray(0, BYTE_ORDER_MARK.length);
  return start.equals(BYTE_ORDER_MARK) ? line.subarray(start.length) : line;
}

/**
 * The content of a line of JSON in which this version finds no plant, or finds another checksum
 * than that of the plant. If the checksum is nevertheless that of the bytes before it, the line was
 * not modified: a newer version has written it.
 */
function withoutPlant(json: Buffer, damage: string): LineContent<never> {
  const end = json.lastIndexOf(CRC32_MEMBER);
  if (end === -1) return { damage, isOfNewerVersion: false };
  const [, sum] = /^(\d+)\}\s*$/.exec(json.toString('latin1', end + CRC32_MEMBER.length)) ?? [];
  const isOfNewerVersion = Number(sum) === crc32(json.subarray(0, end));
  return { damage: isOfNewerVersion ? damageReasons.newerVersion : damage, isOfNewerVersion };
}

const RECORD_END = /,"crc32":\d+\}/;

/**
 * Whether bytes after the last newline may be the beginning of a record whose write was cut short.
 * Zeros mean yes: only a power cut leaves them. Complete JSON, the end of a record, or the start of
 * a second record mean no: these bytes may have been acknowledged.
 */
export function isTornRecord(tail: Buffer): boolean {
  if (tail.includes(0)) return true;
  if (tail.includes(ID_START, 1) || RECORD_END.test(tail.toString('latin1'))) return false;
  try {
    JSON.parse(withoutByteOrderMark(tail).toString());
    return false;
  } catch {
    return true;
  }
}

/** Whether a line begins with `{"id":` or, if the line is shorter, with as much of it. */
export function beginsAsRecord(line: Buffer): boolean {
  const start = line.subarray(0, ID_START.length);
  return start.equals(ID_START.subarray(0, start.length));
}

/**
 * Whether a file begins with `{"id":`, as a log does. Zeros may take the place of these bytes: a
 * power cut may leave zeros where the first write should be.
 */
export function beginsAsLog(bytes: Buffer): boolean {
  let end = Math.min(bytes.length, ID_START.length);
  while (bytes[end - 1] === 0) end--;
  return beginsAsRecord(bytes.subarray(0, end));
}
