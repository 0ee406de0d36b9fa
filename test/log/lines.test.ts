import t, { type Test } from 'tap';

import type { OpenFile } from '../../dist/log/files.js';
import { lineAt, partsOf, readLine, type Part } from '../../dist/log/lines.js';
import { decodeRecord, encodeRecord, MAX_RECORD_BYTES } from '../../dist/log/record.js';
import { createGate, isPending, logOf, memoryFile, plantsNamed, type Gate } from './support.js';

const CHUNK_BYTES = 262_144;
const FERN = '{"id":7,"name":"fern"}\n';

/** The parts of a file: what kind each is, where it starts, and its bytes or its length. */
async function partsIn(file: OpenFile, end?: number): Promise<[string, number, string | number][]> {
  const parts: [string, number, string | number][] = [];
  for await (const part of partsOf(file, end))
    parts.push([part.kind, part.offset, 'bytes' in part ? String(part.bytes) : part.length]);
  return parts;
}

t.test('a file is read up to its end, or to a given one', async (t) => {
  const file = memoryFile(Buffer.from(FERN + FERN + FERN));
  const { length } = FERN;
  t.strictSame(await partsIn(file), [['lines', 0, FERN + FERN + FERN]]);
  t.strictSame(await partsIn(file, 0), []);
  t.strictSame(await partsIn(file, length), [['lines', 0, FERN]]);
  t.strictSame(await partsIn(file, 4 * length), [['lines', 0, FERN + FERN + FERN]]);
  const tail = ['torn tail', length, FERN.slice(0, 5)] as const;
  t.strictSame(await partsIn(file, length + 5), [['lines', 0, FERN], tail]);
  t.strictSame(await partsIn(memoryFile(Buffer.alloc(0))), []);
});

/** Checks that the parts of a file are whole lines, which add up to all of it. */
async function checkParts(t: Test, content: string, maxBytesRead = Infinity): Promise<void> {
  const parts = await partsIn(memoryFile(Buffer.from(content), maxBytesRead));
  const about = `${content.length} bytes, ${maxBytesRead} at a time`;
  t.equal(parts.map(([, , bytes]) => bytes).join(''), content, about);
  let offset = 0;
  for (const [kind, start, bytes] of parts) {
    const isRight = start === offset && kind === 'lines' && String(bytes).endsWith('\n');
    const isTail = start === offset && kind === 'torn tail' && bytes === 'torn';
    if (!isRight && !isTail) t.fail(`${about}: ${kind} at ${start}`);
    offset += String(bytes).length;
  }
}

t.test('the parts of a file add up to all of it, however few bytes a read returns', async (t) => {
  const lengths = [2, 3.5, 0, 1.2, 7, 0, 0, 6, 0.5].map((chunks) => chunks * CHUNK_BYTES);
  const plants = plantsNamed(...lengths.map((length) => 'x'.repeat(length)));
  for (const maxBytesRead of [1_000, CHUNK_BYTES - 1, 3 * CHUNK_BYTES, Infinity])
    await checkParts(t, `${String(logOf(plants))}torn`, maxBytesRead);
  for (const maxBytesRead of [1, 2, 7, 64])
    await checkParts(t, `${FERN}\n${FERN}torn`, maxBytesRead);
});

t.test('a line may start or end anywhere around a chunk boundary', async (t) => {
  for (const size of [CHUNK_BYTES, 2 * CHUNK_BYTES, 4 * CHUNK_BYTES])
    for (let over = -3; over <= 3; over++)
      await checkParts(t, `${'x'.repeat(size + over - 1)}\n${FERN}${FERN}`);
});

t.test('memory does not grow with the file, and a long line is not kept', async (t) => {
  const names = Array.from({ length: 400 }, (_, n) => 'x'.repeat(n === 7 ? 5_000_000 : 20_000));
  const content = logOf(plantsNamed(...names));
  /** The largest read after the long line, and the largest one of all. */
  let [later, largest] = [0, 0];
  const whole = memoryFile(content);
  const file = {
    read: (buffer: Buffer, at: number, length: number, position: number) => {
      largest = Math.max(largest, buffer.length);
      if (position > 6_000_000) later = Math.max(later, buffer.length);
      return whole.read(buffer, at, length, position);
    },
  } as unknown as OpenFile;
  const buffers = new Set<ArrayBufferLike>();
  for await (const part of partsOf(file)) if ('bytes' in part) buffers.add(part.bytes.buffer);
  t.equal(later, CHUNK_BYTES);
  t.ok(largest < 10_000_000, `${largest} bytes`);
  t.ok(buffers.size <= 4, `${buffers.size} buffers for ${content.length} bytes`);
});

/** A file with one line whose second read waits for a gate, and fails. */
function failingLater(gate: Gate): OpenFile {
  let reads = 0;
  const file = memoryFile(Buffer.from(FERN));
  return {
    async read(buffer: Buffer, at: number, length: number, position: number) {
      if (++reads > 1) {
        await gate.pass();
        throw new Error('the disk is gone');
      }
      return file.read(buffer, at, length, position);
    },
  } as unknown as OpenFile;
}

t.test('a caller that stops early waits for the pending read', async (t) => {
  const gate = createGate();
  const parts = partsOf(failingLater(gate));
  t.match(await parts.next(), { value: { kind: 'lines' } });
  const returned = parts.return();
  t.ok(await isPending(returned));
  gate.open();
  t.match(await returned, { done: true });
});

t.test('a read that fails while the caller is busy rejects when it is its turn', async (t) => {
  const gate = createGate();
  const parts = partsOf(failingLater(gate));
  await parts.next();
  gate.open();
  // An unhandled rejection would be reported by now, and fail the test.
  await new Promise((resolve) => setImmediate(resolve));
  await t.rejects(parts.next(), { message: 'the disk is gone' });
});

t.test('a line longer than any record is skipped, whatever follows it', async (t) => {
  const long = Buffer.alloc(MAX_RECORD_BYTES + 1, 'x');
  const file = memoryFile(Buffer.concat([Buffer.from(FERN), long, Buffer.from(`\n${FERN}torn`)]));
  const next = FERN.length + long.length + 1;
  const expected: [Part['kind'], number, string | number][] = [
    ['lines', 0, FERN],
    ['long line', FERN.length, long.length + 1],
    ['lines', next, FERN],
    ['torn tail', next + FERN.length, 'torn'],
  ];
  t.strictSame(await partsIn(file), expected);
  t.equal(await lineAt(file, next), 3);
  await t.rejects(readLine(file, FERN.length), RangeError);
});

t.test('lineAt returns the number of the line that starts at an offset', async (t) => {
  const lengths = [1, 70, 3, 300_000, 5];
  const content = Buffer.from(lengths.map((length) => `${'x'.repeat(length - 1)}\n`).join(''));
  let offset = 0;
  for (const [index, length] of lengths.entries()) {
    t.equal(await lineAt(memoryFile(content), offset), index + 1);
    offset += length;
  }
  t.equal(await lineAt(memoryFile(content), offset), lengths.length + 1);
});

t.test('readLine returns the line at an offset, however long it is', async (t) => {
  for (const length of [0, 1, 4_000, 4_070, 4_096, 5_000, 8_192, 100_000, 1_000_000]) {
    const plant = { id: 2n, name: 'x'.repeat(length) };
    const line = Buffer.from(encodeRecord(plant));
    const content = Buffer.concat([Buffer.from(FERN), line, Buffer.from(FERN)]);
    for (const maxBytesRead of [Math.ceil(length / 7) + 1, Infinity]) {
      const read = await readLine(memoryFile(content, maxBytesRead), FERN.length);
      t.ok(read.equals(line), `${length} bytes, ${maxBytesRead} at a time`);
      t.strictSame(decodeRecord(read), { name: plant.name });
    }
  }
});

t.test('readLine returns an incomplete line at the end of the file', async (t) => {
  const read = async (text: string): Promise<string> =>
    String(await readLine(memoryFile(Buffer.from(FERN + text)), FERN.length));
  t.equal(await read(''), '');
  t.equal(await read('{"id":7'), '{"id":7');
  t.equal(await read('x'.repeat(10_000)), 'x'.repeat(10_000));
});
