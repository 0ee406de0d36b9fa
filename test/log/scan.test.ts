import t from 'tap';

import { toBigInt } from '../../dist/log/id.js';
import { encodeRecord, MAX_RECORD_BYTES } from '../../dist/log/record.js';
import { scan } from '../../dist/log/scan.js';
import type { Damage } from '../../dist/log/errors.js';
import type { OpenFile } from '../../dist/log/files.js';
import { exactly } from '../exactly.js';
import { createGate, ignore, isPending, logOf, memoryFile, plantsNamed } from './support.js';

const CHUNK_BYTES = 262_144;
const FERN = '{"id":7,"name":"fern"}\n';

interface Found {
  readonly records: { readonly id: bigint; readonly offset: number }[];
  readonly damages: Damage[];
  /** The offsets that onProgress was called with. */
  readonly progress: number[];
  readonly tail: { readonly offset: number; readonly text: string };
}

/** All that a scan finds in a file. */
async function find(
  file: OpenFile,
  earlierThan?: (offset: number) => number | undefined,
): Promise<Found> {
  const found: Omit<Found, 'tail'> = { records: [], damages: [], progress: [] };
  const { offset, bytes } = await scan(file, {
    onRecord(words, offset) {
      found.records.push({ id: toBigInt(words), offset });
      return earlierThan?.(offset);
    },
    onDamage: (damage) => void found.damages.push(damage),
    onProgress: (offset) => found.progress.push(offset),
  });
  return { ...found, tail: { offset, text: bytes.toString('latin1') } };
}

t.test('every record is found at its offset, and onProgress is called', async (t) => {
  const names = Array.from({ length: 5_000 }, (_, n) => '\u00e9'.repeat((n * 37) % 600));
  const plants = plantsNamed(...names);
  const content = logOf(plants);
  t.ok(content.length > 6 * CHUNK_BYTES);
  let offset = 0;
  const expected = plants.map((plant) => {
    const record = { id: plant.id, offset };
    offset += Buffer.byteLength(encodeRecord(plant));
    return record;
  });
  const { records, damages, progress } = await find(memoryFile(content));
  t.strictSame(records, expected);
  t.strictSame(damages, []);
  t.ok(progress.length > 6);
  const ascending = progress.toSorted((a, b) => a - b);
  t.strictSame(progress, ascending, 'the progress never decreases');
  t.equal(progress.at(-1), content.length, 'the progress reaches the end');
});

t.test('every damaged line is reported with its number, offset and length', async (t) => {
  const long = '?'.repeat(CHUNK_BYTES);
  const lines = [FERN, '\n', FERN, 'not JSON\n', `${long}\n`, FERN, '\0\0\n', FERN];
  const offsetOf = (line: number): number => lines.slice(0, line - 1).join('').length;
  const { records, damages, tail } = await find(memoryFile(Buffer.from(lines.join(''))));
  t.strictSame(
    damages.map(({ line, offset, length }) => [line, offset, length]),
    [2, 4, 5, 7].map((line) => [line, offsetOf(line), lines[line - 1]?.length]),
  );
  t.strictSame(
    records.map(({ offset }) => offset),
    [1, 3, 6, 8].map(offsetOf),
    'the other lines are records',
  );
  t.equal(tail.offset, lines.join('').length);
});

t.test('invalid UTF-8 damages its own line, and no other line of its chunk', async (t) => {
  const fern = (name: string): string => `{"id":7,"name":"${name}"}\n`;
  const invalid: Record<string, string> = {
    'a lone continuation byte': '\x80',
    'a sequence cut short': '\xe2\x82',
    'an overlong slash': '\xc0\xaf',
    'a surrogate': '\xed\xa0\x80',
    'a code point beyond the last': '\xf4\x90\x80\x80',
    'a byte that UTF-8 never uses': '\xff',
  };
  for (const [what, bytes] of Object.entries(invalid)) {
    const lines = [fern('\xc3\xa9'), fern(bytes), fern('\xf0\x9f\x8c\xbf')];
    const { records, damages } = await find(memoryFile(Buffer.from(lines.join(''), 'latin1')));
    const offset = lines[0]?.length;
    t.match(damages, exactly({ line: 2, offset, length: lines[1]?.length, reason: /UTF-8/ }), what);
    t.equal(records.length, 2);
  }
});

t.test('a record whose id is that of an earlier one is damaged', async (t) => {
  const file = memoryFile(Buffer.from(FERN + FERN));
  const { damages } = await find(file, (offset) => (offset > 0 ? 0 : undefined));
  const { length } = FERN;
  const reason = 'it repeats the id of the line at byte 0';
  t.strictSame(damages, [{ line: 2, offset: length, length, reason, earlier: 0 }]);
});

t.test('a scan waits until a damaged line has been handled, with its bytes', async (t) => {
  const gate = createGate();
  const seen: (number | string)[] = [];
  // The second damaged line is read with a later part of the file.
  const file = memoryFile(Buffer.from(`${FERN}x\n${FERN}yy\n`), FERN.length + 3);
  const scanning = scan(file, {
    onRecord: (_, offset) => void seen.push(offset),
    async onDamage(_, line) {
      seen.push(String(line));
      await gate.pass();
    },
    onProgress: ignore,
  });
  await gate.reached;
  t.ok(await isPending(scanning));
  t.strictSame(seen, [0, 'x\n'], 'no line is read meanwhile');
  gate.open();
  await scanning;
  t.strictSame(seen, [0, 'x\n', FERN.length + 2, 'yy\n']);
});

t.test('a line at the length limit is read, and one byte more is damage', async (t) => {
  const record = (length: number): string =>
    `{"id":1,"name":"${'x'.repeat(length - '{"id":1,"name":""}\n'.length)}"}\n`;
  const length = MAX_RECORD_BYTES + 1;
  const [longest, tooLong] = [record(length - 1), record(length)];
  const { records, damages } = await find(memoryFile(Buffer.from(FERN + longest + tooLong + FERN)));
  const offset = FERN.length + longest.length;
  t.match(damages, exactly({ line: 3, offset, length, reason: /longer/ }));
  t.strictSame(records, [
    { id: 7n, offset: 0 },
    { id: 1n, offset: FERN.length },
    { id: 7n, offset: offset + length },
  ]);
});

t.test('a line longer than any record need not end with a newline', async (t) => {
  const length = MAX_RECORD_BYTES + CHUNK_BYTES;
  const { damages, tail } = await find(memoryFile(Buffer.alloc(length, 'x'), MAX_RECORD_BYTES / 2));
  t.match(damages, exactly({ line: 1, offset: 0, length }));
  t.strictSame(tail, { offset: length, text: '' });
});
