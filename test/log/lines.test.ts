import t, { type Test } from 'tap';

import type { OpenFile } from '../../dist/log/files.js';
import { partsOf } from '../../dist/log/lines.js';
import { MAX_RECORD_BYTES } from '../../dist/log/record.js';
import { FERN, plantsNamed } from '../helpers/plants.js';
import { lineOf, logOf, memoryFile } from './support.js';

const CHUNK_BYTES = 114_688;
const LINE = lineOf(FERN);

const fileOf = (content: string, maxBytesRead?: number): OpenFile =>
  memoryFile(Buffer.from(content, 'latin1'), maxBytesRead);

/** The parts in which a file is read: the offset and the bytes of each. */
async function partsIn(file: OpenFile, end?: number): Promise<[offset: number, bytes: string][]> {
  const parts: [number, string][] = [];
  for await (const { offset, bytes, torn } of partsOf(file, end))
    parts.push([offset, Buffer.concat([bytes, torn]).toString('latin1')]);
  return parts;
}

t.test('a file is read up to its end, or up to a given offset', async (t) => {
  const file = fileOf(LINE + LINE + LINE);
  const { length } = LINE;
  t.strictSame(await partsIn(file), [[0, LINE + LINE + LINE]]);
  t.strictSame(await partsIn(file, 0), []);
  t.strictSame(await partsIn(file, length), [[0, LINE]]);
  t.strictSame(await partsIn(file, 4 * length), [[0, LINE + LINE + LINE]]);
  t.strictSame(await partsIn(file, length + 5), [
    [0, LINE],
    [length, LINE.slice(0, 5)],
  ]);
  t.strictSame(await partsIn(memoryFile(Buffer.alloc(0))), []);
});

t.test('every line is found, with its id if it is a record', async (t) => {
  const long = '?'.repeat(CHUNK_BYTES);
  const texts = [LINE, '\n', LINE, 'not JSON\n', `${long}\n`, LINE, '\0\0\n', LINE.slice(0, -1)];
  const found: [text: string, id: bigint | undefined][] = [];
  for await (const { offset, bytes, lines } of partsOf(fileOf(texts.join(''))))
    for (const line of lines)
      found.push([
        bytes.toString('latin1', line.offset - offset, line.offset - offset + line.length),
        line.id,
      ]);
  t.strictSame(
    found,
    texts.map((text) => [text, LINE.startsWith(text) ? FERN.id : undefined]),
  );
});

/**
 * Checks that each part of a file consists of whole lines, and that the parts add up to the file.
 */
async function expectParts(t: Test, content: string, maxBytesRead = Infinity): Promise<void> {
  const parts = await partsIn(fileOf(content, maxBytesRead));
  const about = `${content.length} bytes, ${maxBytesRead} at a time`;
  t.equal(parts.map(([, bytes]) => bytes).join(''), content, about);
  let offset = 0;
  for (const [start, bytes] of parts) {
    const isWhole = bytes.endsWith('\n') || bytes === 'torn';
    if (start !== offset || !isWhole) t.fail(`${about}: at ${start}`);
    offset += bytes.length;
  }
}

t.test('the parts of a file add up to all of it, however few bytes a read returns', async (t) => {
  const lengths = [2, 0, 1.2, 3.5, 0, 0.5].map((chunks) => chunks * CHUNK_BYTES);
  const plants = plantsNamed(...lengths.map((length) => 'x'.repeat(length)));
  for (const maxBytesRead of [10_000, CHUNK_BYTES - 1, 3 * CHUNK_BYTES, Infinity])
    await expectParts(t, `${logOf(plants).toString('latin1')}torn`, maxBytesRead);
  for (const maxBytesRead of [1, 2, 7, 64])
    await expectParts(t, `${LINE}\n${LINE}torn`, maxBytesRead);
});

t.test('a line may start or end anywhere around a chunk boundary', async (t) => {
  for (const size of [CHUNK_BYTES, 2 * CHUNK_BYTES, 4 * CHUNK_BYTES])
    for (let over = -3; over <= 3; over++)
      await expectParts(t, `${'x'.repeat(size + over - 1)}\n${LINE}${LINE}`);
});

t.test('a long line does not make later reads longer', async (t) => {
  const names = Array.from({ length: 100 }, (_, n) => 'x'.repeat(n === 7 ? 5_000_000 : 20_000));
  const whole = memoryFile(logOf(plantsNamed(...names)));
  /** The largest read after the long line, and the largest of all reads. */
  let [later, largest] = [0, 0];
  const file = {
    read: (buffer: Buffer, position: number) => {
      largest = Math.max(largest, buffer.length);
      if (position > 6_000_000) later = Math.max(later, buffer.length);
      return whole.read(buffer, position);
    },
  } as unknown as OpenFile;
  await partsIn(file);
  t.ok(later <= CHUNK_BYTES, `${later} bytes`);
  t.ok(largest < 10_000_000, `${largest} bytes`);
});

t.test('a line of the longest length is read; one byte more is an error', async (t) => {
  const found: number[] = [];
  const end = LINE.length + MAX_RECORD_BYTES;
  const content = Buffer.alloc(end + MAX_RECORD_BYTES + 1);
  content.write(LINE, 'latin1');
  content.write('\n', end - 1);
  const reading = (async () => {
    for await (const { lines } of partsOf(memoryFile(content)))
      found.push(...lines.map(({ length }) => length));
  })();
  const message = `the line at byte ${end} is longer than any record`;
  await t.rejects(reading, { name: 'RangeError', message });
  t.strictSame(found, [LINE.length, MAX_RECORD_BYTES]);
});
