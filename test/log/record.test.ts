import { randomBytes } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { crc32 as zlibCrc32 } from 'node:zlib';

import fc from 'fast-check';
import t from 'tap';

import { crc32 } from '../../dist/log/crc32.js';
import { damageReasons } from '../../dist/log/errors.js';
import { linesIn, type Line } from '../../dist/log/lines.js';
import { encodeRecord } from '../../dist/log/encode.js';
import { beginsAsRecord, isTornRecord, parseLine } from '../../dist/log/record.js';
import { storedPlantIn } from '../../dist/plant-json.js';
import { MAX_ID, MIN_ID, type NewPlant } from '../../dist/plant.js';
import { anyPlant } from '../helpers/any-plant.js';
import { PLANTS_OF_EACH_SHAPE } from '../helpers/plants.js';
import { signed } from './support.js';

const NEIGHBOUR = Buffer.from(encodeRecord({ id: 5n, name: '' }));

/** Reads a line together with other lines. Returns what was found in this line. */
function found(line: string | Buffer): Line | undefined {
  const bytes = Buffer.from(line);
  const lines = linesIn(Buffer.concat([NEIGHBOUR, bytes, NEIGHBOUR]));
  const each = lines.find(({ offset }) => offset === NEIGHBOUR.length);
  return each?.length === bytes.length ? each : undefined;
}

/** The id in a line, or undefined if it is not a record. Both readers of a line must agree. */
function idIn(line: string): bigint | undefined {
  const each = found(line);
  const read = each?.damage === undefined ? each?.id : undefined;
  if (recordIn(line)?.id !== read) throw new Error(`the readers differ: ${line}`);
  return read;
}

const isWhole = ({ damage }: Line): boolean => damage === undefined;
const isRecord = (line: string): boolean => idIn(line) !== undefined;

function recordIn(line: string): NewPlant | undefined {
  const { plant, damage } = parseLine(Buffer.from(line), storedPlantIn);
  return damage === undefined ? plant : undefined;
}

function unsigned(record: string): string {
  return record.replace(/,"crc32":\d+\}\n$/, '}\n');
}

t.test('every encoded plant is read unchanged, wherever it is in a buffer', async (t) => {
  fc.assert(
    fc.property(anyPlant, fc.array(anyPlant), (plant, before) => {
      const line = encodeRecord(plant);
      const offset = 9 + Buffer.byteLength(before.map(encodeRecord).join(''));
      const bytes = Buffer.from([...before, plant, plant].map(encodeRecord).join(''));
      const lines = linesIn(bytes, 9, 3);
      const number = before.length + 4;
      const { id } = plant;
      return (
        lines.length === before.length + 2 &&
        isDeepStrictEqual(lines[before.length], {
          number,
          offset,
          length: Buffer.byteLength(line),
          id,
        }) &&
        lines.every((each, n) => isWhole(each) && each.id === (before[n] ?? plant).id) &&
        isDeepStrictEqual(recordIn(line), plant)
      );
    }),
    { numRuns: 1_000 },
  );
  t.pass();
});

t.test('a record without escapes is not parsed, whichever members it has', async (t) => {
  for (const plant of PLANTS_OF_EACH_SHAPE) {
    const line = Buffer.from(encodeRecord(plant));
    const parsed = t.capture(JSON, 'parse', JSON.parse);
    const lines = linesIn(line);
    t.strictSame(parsed(), []);
    t.strictSame(lines, [{ number: 1, offset: 0, length: line.length, id: plant.id }]);
  }
});

t.test('a line is a record if and only if it encodes to itself', async (t) => {
  const pieces = '{ } " : , - 0 7 \\ u \n \x1f \u00e9 \ufeff'.split(' ').concat(' ');
  fc.assert(
    fc.property(
      anyPlant,
      fc.boolean(),
      fc.nat(),
      fc.nat(2),
      fc.constantFrom(...pieces),
      (plant, isSigned, at, length, piece) => {
        const line = isSigned ? encodeRecord(plant) : unsigned(encodeRecord(plant));
        const start = at % line.length;
        const changed = line.slice(0, start) + piece + line.slice(start + length);
        // UTF-8 cannot contain a lone surrogate, so it is replaced.
        const edited = Buffer.from(changed).toString();
        if (edited.indexOf('\n') !== edited.length - 1) return true;
        const decoded = recordIn(edited);
        if (idIn(edited) === undefined || !decoded) return !decoded;
        const again = encodeRecord(decoded);
        return edited === again;
      },
    ),
    { numRuns: 2_000 },
  );
  t.pass();
});

t.test('changing, removing or inserting any one byte of a record is detected', async (t) => {
  const record = Buffer.from(encodeRecord({ id: 7n, name: 'fern \u{1f33f}', tag: '' }));
  const edited = [...record].flatMap((byte, at) => {
    const others = [byte ^ 1, byte ^ 0x80, 0, 0x0a, 0x22].filter((other) => other !== byte);
    const edit = (removed: number, ...bytes: number[]) =>
      Buffer.from([...record].toSpliced(at, removed, ...bytes));
    return [
      ...others.map((other) => edit(1, other)),
      edit(1),
      ...[byte, 0, 0x0a, 0x20].map((more) => edit(0, more)),
    ];
  });
  const isUndetected = (bytes: Buffer): boolean =>
    linesIn(Buffer.concat([NEIGHBOUR, bytes, NEIGHBOUR])).every(isWhole);
  t.strictSame(edited.filter(isUndetected).map(String), []);
});

t.test('a record is JSON of one layout, with the checksum of the bytes before it', async (t) => {
  const escapes = String.raw`{"id":0,"name":"\b\f\n\r\t\"\\\u0000\u001f","tag":"\udfff\ud800"`;
  const plants: readonly (readonly [text: string, plant: NewPlant])[] = [
    ['{"id":7,"name":"fern"', { id: 7n, name: 'fern' }],
    ['{"id":-1,"name":"","tag":""', { id: -1n, name: '', tag: '' }],
    [escapes, { id: 0n, name: '\b\f\n\r\t"\\\0\x1f', tag: '\udfff\ud800' }],
    // In JSON, DEL is not a control character.
    [`{"id":${MIN_ID},"name":"\x7f"`, { id: MIN_ID, name: '\x7f' }],
    [`{"id":${MAX_ID},"name":"\u{1f33f}"`, { id: MAX_ID, name: '\u{1f33f}' }],
    [`{"id":${2n ** 53n + 1n},"name":"\u00e9"`, { id: 2n ** 53n + 1n, name: '\u00e9' }],
  ];
  for (const [text, plant] of plants) {
    t.equal(encodeRecord(plant), signed(text));
    t.equal(idIn(signed(text)), plant.id, text);
    t.strictSame(recordIn(signed(text)), plant, text);
  }
});

/**
 * Names with which the checksum of the plant 7 is the least or the greatest with its number of
 * digits.
 */
const NAMES_BY_CHECKSUM: Readonly<Record<number, string>> = {
  0: 'cbnomaijh',
  9: 'onfmnghfh',
  10: 'aiijddihj',
  99: 'kkfonmodh',
  100: 'aajmfikca',
  999: 'jjclogbib',
  1000: 'mgjaohjha',
  9999: 'adjfbgjdh',
  10000: 'bcbjakdjj',
  99999: 'indeeadea',
  100000: 'fiacfchha',
  999999: 'edfdighhh',
  1000000: 'kdejncnbh',
  9999999: 'jmenandba',
  10000000: 'bkjkmibma',
  99999999: 'mgkeacejb',
  100000000: 'jejknhfaj',
  999999999: 'foeihodch',
  1000000000: 'mibkgnoih',
  4294967295: 'jiggkoakh',
};

t.test('a checksum is written with all of its digits, however many it has', async (t) => {
  for (const [sum, name] of Object.entries(NAMES_BY_CHECKSUM)) {
    const record = encodeRecord({ id: 7n, name });
    t.equal(record, `{"id":7,"name":"${name}","crc32":${sum}}\n`);
    t.equal(idIn(record), 7n);
  }
});

t.test('no part of a record is a record, unless it lacks only the newline', async (t) => {
  for (const tag of [{}, { tag: 'in\ndoor \u{1f33f}' }]) {
    const record = encodeRecord({ id: -7n, name: 'fern\0\ud800', ...tag });
    const line = Buffer.from(record).subarray(0, -1);
    const parts = Array.from({ length: line.length - 1 }, (_, n) => line.subarray(0, n + 1));
    const isTorn = (part: Buffer) => isTornRecord(part) && beginsAsRecord(part);
    t.strictSame(
      parts.filter((part) => !isTorn(part) || linesIn(part)[0]?.id !== undefined),
      [],
    );
    t.strictSame(linesIn(line), [{ number: 1, offset: 0, length: line.length, id: -7n }]);
    t.notOk(isTornRecord(line));
  }
  t.strictSame(linesIn(Buffer.alloc(0)), []);
});

t.test('a line that deviates from the format is not a record, with any checksum', async (t) => {
  const ids = ' - --7 +7 "7" null -0 07 -07 7.0 7e0 0x7 7: 7/'.split(' ');
  const large = [MAX_ID + 1n, MIN_ID - 1n, 10n ** 19n - 1n, 10n ** 19n, 2n ** 64n + 7n, 10n ** 40n];
  const strings = [
    ...['\x1f', '\0', '\t', '\n'],
    ...[String.raw`\/`, String.raw`\u0041`, String.raw`\u001F`, String.raw`\ud83c\udf3f`],
  ];
  const members = [
    ...[...ids, ...large].map((id) => `{"id":${id},"name":"fern"`),
    ...strings.flatMap((text) => [
      `{"id":7,"name":"${text}"`,
      `{"id":7,"name":"fern","tag":"${text}"`,
    ]),
    '{"id":7',
    '{"id":7,"tag":"indoor"',
    '{"id":7,"name":"fern","crc32":1',
    String.raw`{"id":7,"n\u0061me":"fern"`,
  ];
  const lines = members.flatMap((text) => [`${text}}\n`, signed(text)]);
  t.strictSame(lines.filter(isRecord), []);
});

t.test('a line whose checksum does not match is not a record', async (t) => {
  const members = '{"id":7,"name":"fern"';
  const own = zlibCrc32(members);
  t.equal(idIn(`${members},"crc32":${own}}\n`), 7n);
  const others = [own + 1, own ^ 1, -own, 2 ** 32 + own, 2 ** 64, '', 'null', own.toString(16)];
  const spelt = [`0${own}`, `00${own}`, `${own}.0`, `${own}0`, `"${own}"`, ` ${own}`, `${own} `];
  const lines = [...others, ...spelt].map((other) => `${members},"crc32":${other}}\n`);
  t.strictSame(lines.filter(isRecord), []);
  const zero = '{"id":7,"name":"ITQn9R"';
  t.equal(signed(zero), `${zero},"crc32":0}\n`);
  t.equal(idIn(`${zero},"crc32":0}\n`), 7n);
  t.strictSame([`${zero},"crc32":00}\n`, `${zero},"crc32":-0}\n`].filter(isRecord), []);
});

t.test('the reason why a line is damaged is as exact as the line allows', async (t) => {
  const { crlf, byteOrderMark, noChecksum, otherLayout } = damageReasons;
  const checksum = 'crc32: does not match the plant';
  const fern = signed('{"id":9223372036854775807,"name":"fern","tag":"indoor"').slice(0, -1);
  const rows: readonly (readonly [line: string, damage: string | RegExp])[] = [
    [`${fern} \n`, otherLayout],
    [`${fern.replace(/"name":"fern",(.*)\}/, '$1,"name":"fern"}')}\n`, otherLayout],
    [`${fern.replace(/\}/, ',"colour":"green"}')}\n`, otherLayout],
    [`${fern.replace('fern', String.raw`\u0066ern`)}\n`, otherLayout],
    [`${fern.replaceAll(',', ' , ')}\n`, otherLayout],
    [`${fern}\r\n`, crlf],
    ['{"id":7,"name":"fern"}\r\n', noChecksum],
    ['{"id": 7, "name": "fern"}\n', noChecksum],
    [`\ufeff${fern}\n`, byteOrderMark],
    [`\ufeff${fern}\r\n`, byteOrderMark],
    [`${fern.replace('fern', 'fer_')}\n`, checksum],
    [`${fern.replace('07,', '06,')}\n`, checksum],
    [`${fern.replace('fern', 'fer_')}\r\n`, checksum],
    ['{"id":7,"name":"fern","crc32":"1"}\n', checksum],
    ['{"id":7,"name":"fern","crc32":0}\n', checksum],
    [`${fern.slice(0, 20)}\n`, /^body: must be one JSON text in UTF-8; it /],
    ['\n', 'it is blank'],
    ['{"id":"7", "name":["fern"]}\n', /^id: must be an integer .*, not a string; name: must be/],
    ['{"id":7, "name":"fern", "tag":null}\n', 'tag: must be a string, or be left out'],
    ['{"id":7,"id":7,"name":"fern"}\n', 'id: must not be given twice'],
    ['[]\n', 'body: must be a JSON object with the members id and name'],
  ];
  for (const [line, damage] of rows) {
    t.equal(idIn(line), undefined, line);
    t.match(found(line), { damage }, line);
  }
});

t.test('a line whose checksum is right for other members is of a newer version', async (t) => {
  const members = [
    '{"id":7,"name":"fern","light":"shade"',
    '{"id":7,"light":[],"name":"fern","tag":"\u82d4"',
    '{"id":7,"name":["fern"]',
    '{"id":"7f","name":"fern"',
    String.raw`{"id":7,"name":"\u0066ern"`,
  ];
  const damage = 'a newer version of plant-store has written it; use that version';
  for (const line of members.map((text) => signed(text)))
    for (const saved of [line, line.replace('\n', '\r\n'), `\ufeff${line}`]) {
      t.match(found(saved), { damage, isOfNewerVersion: true, id: undefined }, saved);
      const changed = saved.replace('fern', 'farn').replace('\\u0066', '\\u0067');
      const { isOfNewerVersion, rewritable } = found(changed) ?? {};
      t.strictSame([isOfNewerVersion, rewritable], [false, undefined], changed);
    }
});

t.test('invalid UTF-8 damages its own line, and no other line of a buffer', async (t) => {
  const fern = (name: string): string => signed(`{"id":7,"name":"${name}"`, 'latin1');
  const invalid = ['\x80', '\xe2\x82', '\xc0\xaf', '\xed\xa0\x80', '\xf4\x90\x80\x80', '\xff'];
  for (const bytes of invalid) {
    const lines = [fern('\xc3\xa9'), fern(bytes), fern('\xf0\x9f\x8c\xbf')];
    const all = linesIn(Buffer.from(lines.join(''), 'latin1'));
    t.strictSame(
      all.map(({ id, damage }) => damage ?? id),
      [7n, 'body: must be one JSON text in UTF-8; it is not UTF-8', 7n],
      Buffer.from(bytes, 'latin1').toString('hex'),
    );
  }
});

/** JSON with everything escaped that is not ASCII. */
function inAscii(json: string): string {
  const escape = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return json.replace(/[^\x20-\x7e]/g, escape);
}

t.test('a line in another layout holds its plant, unless the checksum differs', async (t) => {
  fc.assert(
    fc.property(anyPlant, fc.nat(6), (plant, layout) => {
      const { id, ...members } = plant;
      const record = encodeRecord(plant).slice(0, -1);
      const sum = /\d+(?=\}$)/.exec(record)?.[0] ?? '';
      const strings = JSON.stringify(members).slice(1, -1);
      const lines = [
        `${record}\r\n`,
        `\ufeff${record}\n`,
        `\t${record}  \n`,
        `{${strings}, "id": ${id}, "colour": {"id": [1]}, "crc32": ${sum}}\n`,
        `{"crc32":${sum},"id":${id}.0,${strings}}\n`,
        `{"id":${id} ,${inAscii(strings)}}\n`,
        `{"id":${id} ,${strings}}\n`,
      ];
      const line = lines[layout] ?? '';
      const ofOther = line.replace(/"id": ?[-\d.]+/, `"id":${id === 0n ? 1n : 0n}`);
      const [each, other] = [found(line), found(ofOther)];
      return (
        each?.damage !== undefined &&
        isDeepStrictEqual(each.rewritable, plant) &&
        (layout > 4 || (!other?.rewritable && other?.damage === 'crc32: does not match the plant'))
      );
    }),
    { numRuns: 1_000 },
  );
  t.pass();
});

t.test('only what a write of records can have left at the end of a file is torn', async (t) => {
  const fern = encodeRecord({ id: 7n, name: 'fern' }).slice(0, -1);
  const begin = fern.slice(0, 20);
  const torn = ['{', begin, `\0\0${fern.slice(2)}`, '\0', '\x1a', 'x', `${fern}\0`];
  torn.push(`${begin}\0\0\0${fern.slice(0, 9)}`);
  const whole = [fern, `${fern}\r`, `\ufeff${fern}`, '{}', '[1]', 'null', `${fern} ${fern}`];
  whole.push(`${fern}\r${fern.slice(0, 9)}`, `${begin}${fern.slice(0, 9)}`);
  whole.push('\ufeff{"id":7,"name":"fern"}', `${fern},`, fern.replace('fern"', 'fern'));
  const tails = [...torn, ...whole];
  t.strictSame(
    tails.filter((tail) => isTornRecord(Buffer.from(tail))),
    torn,
  );
});

t.test('crc32 equals that of zlib for every range of bytes', async (t) => {
  const bytes = randomBytes(2_000);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const wrong: string[] = [];
  for (let length = 0; length <= 1_000; length++)
    for (const start of [0, 1, 7, 8, 1_000 - (length % 9)]) {
      const end = start + length;
      if (crc32(view, start, end) !== zlibCrc32(bytes.subarray(start, end)))
        wrong.push(`${start} to ${end}`);
    }
  t.strictSame(wrong, []);
});
