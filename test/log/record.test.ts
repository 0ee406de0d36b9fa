import { isDeepStrictEqual } from 'node:util';
import { crc32 } from 'node:zlib';

import fc from 'fast-check';
import t from 'tap';

import { damages } from '../../dist/log/errors.js';
import {
  beginsAsRecord,
  decodeRecord,
  encodeRecord,
  isTornRecord,
  linesIn,
  readLoosely,
} from '../../dist/log/record.js';
import type { NewPlant } from '../../dist/plant.js';

const MIN_ID = -(2n ** 63n);
const MAX_ID = 2n ** 63n - 1n;

/**
 * The id that is read from a line among others, or undefined if the line is not a record. Both readers of a
 * line must agree.
 */
function idIn(line: string): bigint | undefined {
  const bytes = Buffer.from(line);
  const neighbour = Buffer.from('{"id":5,"name":""}\n');
  const lines = linesIn(Buffer.concat([neighbour, bytes, neighbour]));
  const start = neighbour.length;
  const found = lines.find((each) => each.start === start);
  const id = found?.end === start + bytes.length ? found.id : undefined;
  if (decodeRecord(bytes)?.id !== id) throw new Error(`the readers differ: ${line}`);
  return id;
}

/** A line with the checksum that belongs to it. */
function signed(members: string): string {
  return `${members},"crc32":${crc32(members)}}\n`;
}

const anyString = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.string({ unit: 'grapheme' }),
  // Any UTF-16 code units: surrogates in pairs, alone and in the wrong order.
  fc.array(fc.integer({ min: 0, max: 0xffff })).map((units) => String.fromCharCode(...units)),
  fc
    .array(fc.constantFrom('\0', '\n', '"', '\\', '\ud800', '\udfff', '\u{1f33f}'))
    .map((each) => each.join('')),
);

const anyPlant: fc.Arbitrary<NewPlant> = fc.record(
  { id: fc.bigInt({ min: MIN_ID, max: MAX_ID }), name: anyString, tag: anyString },
  { requiredKeys: ['id', 'name'], noNullPrototype: true },
);

t.test('every encoded plant is read unchanged, wherever it is in a buffer', async (t) => {
  fc.assert(
    fc.property(anyPlant, fc.array(anyPlant), (plant, before) => {
      const line = encodeRecord(plant);
      const start = Buffer.byteLength(before.map(encodeRecord).join(''));
      const lines = linesIn(Buffer.from([...before, plant, plant].map(encodeRecord).join('')));
      return (
        lines.length === before.length + 2 &&
        lines[before.length]?.start === start &&
        lines[before.length]?.end === start + Buffer.byteLength(line) &&
        lines.every(({ id }, n) => id === (before[n] ?? plant).id) &&
        isDeepStrictEqual(decodeRecord(Buffer.from(line)), plant)
      );
    }),
    { numRuns: 2_000 },
  );
  t.pass();
});

/** The text that is left of one once it has been in UTF-8. */
function withoutLoneSurrogates(text: string): string {
  return Buffer.from(text).toString();
}

t.test('a line is a record if and only if it encodes to itself', async (t) => {
  const pieces = [
    '{',
    '}',
    '"',
    ':',
    ',',
    '-',
    '0',
    '7',
    '\\',
    'u',
    '\n',
    ' ',
    '\x1f',
    '\u00e9',
    '\ufeff',
  ];
  fc.assert(
    fc.property(
      anyPlant,
      fc.boolean(),
      fc.nat(),
      fc.nat(2),
      fc.constantFrom(...pieces),
      (plant, isSigned, at, length, piece) => {
        const written = encodeRecord(plant);
        const line = isSigned ? written : written.replace(/,"crc32":\d+\}\n$/, '}\n');
        const start = at % line.length;
        const edited = withoutLoneSurrogates(
          line.slice(0, start) + piece + line.slice(start + length),
        );
        if (edited.indexOf('\n') !== edited.length - 1) return true;
        const id = idIn(edited);
        const decoded = decodeRecord(Buffer.from(edited));
        if (id === undefined || !decoded) return id === undefined && !decoded;
        const again = encodeRecord(decoded);
        return edited === again || edited === again.replace(/,"crc32":\d+\}\n$/, '}\n');
      },
    ),
    { numRuns: 5_000 },
  );
  t.pass();
});

t.test(
  'no proper part of a line is a record, but for one that lacks only its newline',
  async (t) => {
    for (const tag of [{}, { tag: 'in\ndoor \u{1f33f}' }]) {
      const line = Buffer.from(encodeRecord({ id: -7n, name: 'fern\0\ud800', ...tag }));
      for (let end = 1; end < line.length - 1; end++) {
        t.ok(isTornRecord(line.subarray(0, end)) && beginsAsRecord(line.subarray(0, end), 9));
        t.strictSame(
          linesIn(line.subarray(0, end)),
          [{ start: 0, end, id: undefined }],
          `its first ${end} bytes`,
        );
      }
      const end = line.length - 1;
      t.strictSame(linesIn(line.subarray(0, end)), [{ start: 0, end, id: -7n }]);
      t.notOk(isTornRecord(line.subarray(0, end)));
    }
    t.strictSame(linesIn(Buffer.alloc(0)), []);
  },
);

t.test('a line is plain JSON, and its checksum is that of the bytes before it', async (t) => {
  const plant = { id: 7n, name: 'Boston fern', tag: 'indoor' };
  t.equal(encodeRecord(plant), '{"id":7,"name":"Boston fern","tag":"indoor","crc32":1134476476}\n');
  t.equal(encodeRecord({ id: 7n, name: 'f' }), signed('{"id":7,"name":"f"'));
});

t.test('a line that was written by hand is a record', async (t) => {
  const lines: Record<string, [id: bigint, line: string, name: string, tag?: string]> = {
    'without a checksum': [7n, '{"id":7,"name":"fern"}\n', 'fern'],
    'with a tag': [7n, '{"id":7,"name":"fern","tag":""}\n', 'fern', ''],
    'with the escapes that JSON.stringify writes': [
      7n,
      String.raw`{"id":7,"name":"\b\f\n\r\t\"\\\u0000\u001f","tag":"\udfff\ud800"}` + '\n',
      '\b\f\n\r\t"\\\0\x1f',
      '\udfff\ud800',
    ],
    'with characters that are not ASCII': [
      3n,
      '{"id":3,"name":"\u{1f33f}","tag":"\u00e9"}\n',
      '\u{1f33f}',
      '\u00e9',
    ],
    'with DEL, which is no control character to JSON': [7n, '{"id":7,"name":"\x7f"}\n', '\x7f'],
    'with the id 0': [0n, '{"id":0,"name":""}\n', ''],
    'with the id -1': [-1n, '{"id":-1,"name":""}\n', ''],
    'with the least id': [MIN_ID, `{"id":${MIN_ID},"name":""}\n`, ''],
    'with the greatest id': [MAX_ID, `{"id":${MAX_ID},"name":""}\n`, ''],
  };
  for (const [what, [id, line, name, tag]] of Object.entries(lines)) {
    t.equal(idIn(line), id, what);
    t.strictSame(
      decodeRecord(Buffer.from(line)),
      tag === undefined ? { id, name } : { id, name, tag },
      what,
    );
  }
});

t.test('a line that deviates from the format is refused with any checksum', async (t) => {
  const members: Record<string, string> = {
    nothing: '',
    null: 'null',
    'no members': '{',
    'no id': '{"name":"fern"',
    'no name': '{"id":7',
    'a tag and no name': '{"id":7,"tag":"indoor"',
    'another order': '{"name":"fern","id":7',
    'a tag before the name': '{"id":7,"tag":"indoor","name":"fern"',
    'another member': '{"id":7,"name":"fern","colour":"green"',
    'another member after the tag': '{"id":7,"name":"fern","tag":"indoor","colour":"green"',
    'another member first': '{"colour":"green","id":7,"name":"fern"',
    'a member twice': '{"id":7,"name":"fern","name":"fern"',
    'a tag twice': '{"id":7,"name":"fern","tag":"indoor","tag":"indoor"',
    'a checksum twice': '{"id":7,"name":"fern","crc32":1',
    'a name in another spelling': String.raw`{"id":7,"n\u0061me":"fern"`,
    'a space before the brace': ' {"id":7,"name":"fern"',
    'a space after the brace': '{ "id":7,"name":"fern"',
    'a space before the id': '{"id": 7,"name":"fern"',
    'a space after the id': '{"id":7 ,"name":"fern"',
    'a space before the name': '{"id":7,"name": "fern"',
    'a space after the name': '{"id":7,"name":"fern" ',
    'a byte order mark': '\ufeff{"id":7,"name":"fern"',
    'an id without digits': '{"id":,"name":"fern"',
    'a minus without digits': '{"id":-,"name":"fern"',
    'two minus': '{"id":--7,"name":"fern"',
    'a plus': '{"id":+7,"name":"fern"',
    'a colon after the id': '{"id":7:,"name":"fern"',
    'a colon after an id of many digits': '{"id":1234567890:,"name":"fern"',
    'a slash after the id': '{"id":7/,"name":"fern"',
    'a slash after an id of many digits': '{"id":1234567890/,"name":"fern"',
    'an id as a string': '{"id":"7","name":"fern"',
    'an id as null': '{"id":null,"name":"fern"',
    'minus zero': '{"id":-0,"name":"fern"',
    'a leading zero': '{"id":07,"name":"fern"',
    'a leading zero after the minus': '{"id":-07,"name":"fern"',
    'a fraction': '{"id":7.0,"name":"fern"',
    'an exponent': '{"id":7e0,"name":"fern"',
    'hexadecimal digits': '{"id":0x7,"name":"fern"',
    'an id above an int64': `{"id":${MAX_ID + 1n},"name":"fern"`,
    'an id below an int64': `{"id":${MIN_ID - 1n},"name":"fern"`,
    'the greatest id of 19 digits': '{"id":9999999999999999999,"name":"fern"',
    'the least id of 19 digits': '{"id":-9999999999999999999,"name":"fern"',
    'an id of 20 digits': '{"id":10000000000000000000,"name":"fern"',
    'an id that is 7 modulo 2^64': `{"id":${2n ** 64n + 7n},"name":"fern"`,
    'an id of 40 digits': `{"id":${'7'.repeat(40)},"name":"fern"`,
    'a name as null': '{"id":7,"name":null',
    'a name as a number': '{"id":7,"name":7',
    'a tag as null': '{"id":7,"name":"fern","tag":null',
    'a string without an end': '{"id":7,"name":"fern',
    'a string that ends in a backslash': String.raw`{"id":7,"name":"fern\"`,
    'an escape of a slash': String.raw`{"id":7,"name":"\/"`,
    'an escape that is not needed': String.raw`{"id":7,"name":"\u0041"`,
    'an escape in upper case': String.raw`{"id":7,"name":"\u001F"`,
    'an escape of a surrogate pair': String.raw`{"id":7,"name":"\ud83c\udf3f"`,
    'a long escape of a newline': String.raw`{"id":7,"name":"\u000a"`,
    'an unknown escape': String.raw`{"id":7,"name":"\x41"`,
    'an escape of a quote': String.raw`{"id":7,"name":"\'"`,
    'an upper-case U': String.raw`{"id":7,"name":"\U0041"`,
    'three hexadecimal digits': String.raw`{"id":7,"name":"\u004"`,
    'a letter among the hexadecimal digits': String.raw`{"id":7,"name":"\u00g1"`,
    'a raw control character': '{"id":7,"name":"\x1f"',
    'a raw NUL': '{"id":7,"name":"\0"',
    'a raw tab in the tag': '{"id":7,"name":"fern","tag":"\t"',
    'a raw newline': '{"id":7,"name":"fern\n"',
  };
  for (const [what, text] of Object.entries(members)) {
    t.equal(idIn(`${text}}\n`), undefined, what);
    t.equal(idIn(signed(text)), undefined, `${what}, with a checksum`);
  }
});

t.test('no byte outside the values can differ, even if the checksum matches', async (t) => {
  const parts = [
    ['{"id":', '7'],
    [',"name":', '"fern"'],
    [',"tag":', '"indoor"'],
  ];
  const line = parts.flat().join('');
  const read: string[] = [];
  let start = 0;
  for (const [beside = '', value = ''] of parts) {
    for (let at = start; at < start + beside.length; at++) {
      const changed = `${line.slice(0, at)}?${line.slice(at + 1)}`;
      for (const text of [`${changed}}\n`, signed(changed)])
        if (idIn(text) !== undefined) read.push(text);
    }
    start += beside.length + value.length;
  }
  const sum = signed(line);
  const digits = sum.lastIndexOf(':') + 1;
  for (let at = start; at < digits; at++)
    if (idIn(`${sum.slice(0, at)}?${sum.slice(at + 1)}`) !== undefined)
      read.push(`checksum, ${at}`);
  t.strictSame(read, []);
});

t.test('a line that does not end with a brace and a newline is refused', async (t) => {
  for (const end of [' }\n', '} \n', '}\r\n', '}}\n', '},\n', ',}\n', ']\n', '\n'])
    t.equal(idIn(`{"id":7,"name":"fern"${end}`), undefined, JSON.stringify(end));
});

t.test('a line whose checksum does not match is refused', async (t) => {
  const members = '{"id":7,"name":"fern"';
  const own = crc32(members);
  t.equal(idIn(`${members},"crc32":${own}}\n`), 7n);
  const others = [
    own + 1,
    own ^ 1,
    -own,
    2 ** 32 + own,
    2 ** 64,
    `0${own}`,
    `00${own}`,
    `${own}.0`,
    `${own}0`,
    `"${own}"`,
    ` ${own}`,
    `${own} `,
    '',
    'null',
    own.toString(16),
  ];
  for (const other of others)
    t.equal(idIn(`${members},"crc32":${other}}\n`), undefined, `instead of ${own}: ${other}`);
});

t.test('a checksum of zero is written and read as 0', async (t) => {
  const members = '{"id":7,"name":"ITQn9R"';
  t.equal(signed(members), `${members},"crc32":0}\n`);
  t.equal(idIn(`${members},"crc32":0}\n`), 7n);
  t.equal(idIn(`${members},"crc32":00}\n`), undefined);
  t.equal(idIn(`${members},"crc32":-0}\n`), undefined);
});

t.test('why a line is not a record is said as exactly as it is known', async (t) => {
  const { crlf, byteOrderMark, otherLayout, checksum, noPlant, notUtf8 } = damages;
  const fern = signed('{"id":9223372036854775807,"name":"fern","tag":"indoor"').slice(0, -1);
  const rows: Readonly<Record<string, readonly [line: string, reason: string]>> = {
    'white space': ['{"id": 7, "name": "fern"}\n', otherLayout],
    'white space at the end': ['{"id":7,"name":"fern"} \n', otherLayout],
    'another order': ['{"name":"fern","id":7}\n', otherLayout],
    'the tag first': ['{"id":7,"tag":"indoor","name":"fern"}\n', otherLayout],
    'another member': ['{"id":7,"name":"fern","colour":"green"}\n', otherLayout],
    'other escapes': [String.raw`{"id":7,"name":"\u0066ern"}` + '\n', otherLayout],
    'a checksum of the same plant in another layout': [
      fern.replaceAll(',', ' , ') + '\n',
      otherLayout,
    ],
    'CR LF': [`${fern}\r\n`, crlf],
    'CR LF without a checksum': ['{"id":7,"name":"fern"}\r\n', crlf],
    'a byte order mark': [`\ufeff${fern}\n`, byteOrderMark],
    'a byte order mark and CR LF': [`\ufeff${fern}\r\n`, byteOrderMark],
    'another name': [fern.replace('fern', 'fer_') + '\n', checksum],
    'another id': [fern.replace('07,', '06,') + '\n', checksum],
    'another name and CR LF': [fern.replace('fern', 'fer_') + '\r\n', checksum],
    'a checksum that is a string': ['{"id":7,"name":"fern","crc32":"1"}\n', checksum],
    'a part': [fern.slice(0, 20) + '\n', noPlant],
    nothing: ['\n', noPlant],
    'an id that is a string': ['{"id":"7", "name":"fern"}\n', noPlant],
    'a name that is an array': ['{"id":7, "name":["fern"]}\n', noPlant],
    'a tag that is null': ['{"id":7, "name":"fern", "tag":null}\n', noPlant],
    'a member twice': ['{"id":7,"id":7,"name":"fern"}\n', noPlant],
    null: ['null\n', noPlant],
    'an array': ['[]\n', noPlant],
  };
  for (const [about, [line, reason]] of Object.entries(rows)) {
    t.equal(idIn(line), undefined, about);
    t.equal(readLoosely(Buffer.from(line)).reason, reason, about);
  }
  t.equal(readLoosely(Buffer.from('{"id":7,"name":"\xff"}\n', 'latin1')).reason, notUtf8);
});

t.test('invalid UTF-8 damages its own line, and no other line of a buffer', async (t) => {
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
    const found = linesIn(Buffer.from(lines.join(''), 'latin1'));
    t.strictSame(
      found.map(({ id }) => id),
      [7n, undefined, 7n],
      what,
    );
  }
});

t.test(
  'a line that is laid out differently holds its plant, unless its checksum is another',
  async (t) => {
    fc.assert(
      fc.property(anyPlant, fc.nat(6), (plant, layout) => {
        const { id, name, tag } = plant;
        const record = encodeRecord(plant).slice(0, -1);
        const sum = /\d+(?=\}$)/.exec(record)?.[0] ?? '';
        const strings = JSON.stringify({ name, tag }).slice(1, -1);
        const lines = [
          `${record}\r\n`,
          `\ufeff${record}\n`,
          `\t${record}  \n`,
          `{${strings}, "id": ${id}, "colour": {"id": [1]}, "crc32": ${sum}}\n`,
          `{"crc32":${sum},"id":${id}.0,${strings}}\n`,
          `{"id":${id},${strings.replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)}}\n`,
          `{"id":${id} ,${strings}}\n`,
        ];
        const line = Buffer.from(lines[layout] ?? '');
        const other = { id: id === 0n ? 1n : 0n, name, ...(tag === undefined ? {} : { tag }) };
        const ofOther = String(line).replace(/"id": ?[-\d.]+/, `"id":${other.id}`);
        return (
          isDeepStrictEqual(readLoosely(line).plant, plant) &&
          (layout > 4 || readLoosely(Buffer.from(ofOther)).reason === damages.checksum)
        );
      }),
      { numRuns: 2_000 },
    );
    t.pass();
  },
);

t.test(
  'what follows the last newline is torn only if one write of records can have left it',
  async (t) => {
    const fern = encodeRecord({ id: 7n, name: 'fern' }).slice(0, -1);
    for (const tail of [
      '{',
      fern.slice(0, 20),
      `\0\0${fern.slice(2)}`,
      '\0',
      '\x1a',
      'x',
      `${fern}\0`,
    ])
      t.ok(isTornRecord(Buffer.from(tail)), JSON.stringify(tail));
    const whole = [
      fern,
      `${fern}\r`,
      `\ufeff${fern}`,
      '{}',
      '[1]',
      'null',
      `${fern} ${fern}`,
      `${fern}\r${fern.slice(0, 9)}`,
    ];
    for (const tail of whole) t.notOk(isTornRecord(Buffer.from(tail)), JSON.stringify(tail));
  },
);
