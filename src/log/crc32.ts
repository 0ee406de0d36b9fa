import { crc32 as crc32OfAll } from 'node:zlib';

/*
 * A call of zlib's crc32 costs several times what it computes on a line of usual length, so short
 * ranges are summed here, eight bytes at a time (slicing-by-8: Kounavis and Berry, 2005).
 */
const SHORT_BYTES = 512;
const SLICES = 8;
const POLYNOMIAL = 0xedb88320;

/** What a byte adds to the sum when 0 to 7 bytes follow it: 256 entries for each. */
const TABLE = new Int32Array(256 * SLICES);
for (let byte = 0; byte < 256; byte++) {
  let sum = byte;
  for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? (sum >>> 1) ^ POLYNOMIAL : sum >>> 1;
  TABLE[byte] = sum;
}
for (let i = 256; i < TABLE.length; i++) {
  const sum = entry(i - 256);
  TABLE[i] = entry(sum & 0xff) ^ (sum >>> 8);
}

/** The CRC-32 (zlib's) of the bytes from `start` up to but not including `end`. */
export function crc32(bytes: Buffer, start: number, end: number): number {
  if (end - start > SHORT_BYTES) return crc32OfAll(bytes.subarray(start, end));
  let sum = -1;
  let at = start;
  for (; at + SLICES <= end; at += SLICES) {
    sum ^= word(bytes, at);
    sum =
      entry(0x700 | (sum & 0xff)) ^
      entry(0x600 | ((sum >>> 8) & 0xff)) ^
      entry(0x500 | ((sum >>> 16) & 0xff)) ^
      entry(0x400 | (sum >>> 24)) ^
      entry(0x300 | (bytes[at + 4] as number)) ^
      entry(0x200 | (bytes[at + 5] as number)) ^
      entry(0x100 | (bytes[at + 6] as number)) ^
      entry(bytes[at + 7] as number);
  }
  for (; at < end; at++) sum = entry((sum ^ (bytes[at] as number)) & 0xff) ^ (sum >>> 8);
  return ~sum >>> 0;
}

/** Four bytes, the first one lowest. */
function word(bytes: Buffer, at: number): number {
  return (
    (bytes[at] as number) |
    ((bytes[at + 1] as number) << 8) |
    ((bytes[at + 2] as number) << 16) |
    ((bytes[at + 3] as number) << 24)
  );
}

function entry(index: number): number {
  return TABLE[index] as number;
}
