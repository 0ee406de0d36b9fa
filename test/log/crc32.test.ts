import { randomBytes } from 'node:crypto';
import { crc32 as crc32OfAll } from 'node:zlib';

import t from 'tap';

import { crc32 } from '../../dist/log/crc32.js';

function viewOf(bytes: Buffer): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}

t.test('crc32 equals that of zlib for every range of bytes', async (t) => {
  const bytes = randomBytes(2_000);
  const view = viewOf(bytes);
  const wrong: string[] = [];
  for (let length = 0; length <= 1_000; length++)
    for (const start of [0, 1, 7, 8, 1_000 - (length % 9)]) {
      const end = start + length;
      if (crc32(view, start, end) !== crc32OfAll(bytes.subarray(start, end)))
        wrong.push(`${start} to ${end}`);
    }
  t.strictSame(wrong, []);
});

t.test('crc32 of "123456789" is the standard check value', async (t) => {
  t.equal(crc32(viewOf(Buffer.from('123456789')), 0, 9), 0xcbf43926);
  t.equal(crc32(viewOf(Buffer.alloc(0)), 0, 0), 0);
});
