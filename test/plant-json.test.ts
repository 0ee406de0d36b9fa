import { deepEqual } from 'node:assert/strict';

import fc from 'fast-check';
import t from 'tap';

import type { NewPlant } from '../dist/plant.js';
import { checkNewPlant, parseNewPlant, PlantFault } from '../dist/plant-json.js';

const ID_RULE = 'id: must be an integer between -9223372036854775808 and 9223372036854775807';
const STRING_RULE = `${ID_RULE}, not a string`;
const NAME_RULE = 'name: must be a string';
const TAG_RULE = 'tag: must be a string';
const NULL_RULE = `${TAG_RULE}, or be left out`;
const notJson = (why: string): object => ({
  kind: 'json',
  message: `the text must be one JSON text in UTF-8; it ${why}`,
});
const BYTE_ORDER_MARK = { kind: 'json', message: 'the text must not begin with a byte order mark' };
const invalid = (...rules: readonly string[]) => ({ kind: 'plant', message: rules.join('; ') });
const NOT_OBJECT = invalid('the text must be a JSON object with the members id and name');

/** What `parse` returns, or the fault that it throws. */
function outcomeOf(parse: () => NewPlant): NewPlant | PlantFault {
  try {
    return parse();
  } catch (error) {
    if (error instanceof PlantFault) return error;
    throw error;
  }
}

function parse(body: string | Buffer): NewPlant | PlantFault {
  return outcomeOf(() => parseNewPlant(Buffer.from(body)));
}

/** The plant in a text, or the fault that it has. */
function read(body: string | Buffer): unknown {
  return plainly(parse(body));
}

function describe(fault: PlantFault): object {
  return { kind: fault.kind, message: fault.describe('the text') };
}

function plainly(outcome: NewPlant | PlantFault): unknown {
  return outcome instanceof PlantFault ? describe(outcome) : outcome;
}

/** The id that a notation is read as; `undefined` if it is refused. */
function idOf(spelling: string): bigint | undefined {
  const plant = parse(`{"id":${spelling},"name":"fern"}`);
  if (!(plant instanceof PlantFault)) return plant.id;
  const message = spelling.startsWith('"') ? STRING_RULE : ID_RULE;
  deepEqual(describe(plant), { kind: 'plant', message });
  return undefined;
}

const MIN = -(2n ** 63n);
const MAX = 2n ** 63n - 1n;

/** What an id is, in fractions of whole numbers: slow, without bounds, and easy to believe. */
function int64Of(spelling: string): bigint | undefined {
  const [mantissa = '', exponent = '0'] = spelling.toLowerCase().split('e');
  const [whole = '', decimals = ''] = mantissa.split('.');
  const power = BigInt(exponent.replace('+', ''));
  const numerator =
    BigInt(`${whole.replace('-', '')}${decimals}`) * 10n ** (power > 0n ? power : 0n);
  const denominator = 10n ** (BigInt(decimals.length) + (power < 0n ? -power : 0n));
  if (numerator % denominator !== 0n) return undefined;
  const value = (whole.startsWith('-') ? -1n : 1n) * (numerator / denominator);
  return value >= MIN && value <= MAX ? value : undefined;
}

const edge = fc
  .tuple(fc.constantFrom(MIN, MAX, 2n ** 53n, -(2n ** 53n), 0n), fc.bigInt({ min: -3n, max: 3n }))
  .map(([at, beside]) => at + beside);

const int64 = fc.oneof(edge, fc.bigInt({ min: MIN, max: MAX }), fc.bigInt({ min: -99n, max: 99n }));

/** An integer, with its point moved about and an exponent that moves it back, or nearly so. */
const spelling = fc
  .record({
    value: int64,
    zeros: fc.nat(25),
    moved: fc.integer({ min: -30, max: 30 }),
    off: fc.constantFrom(0, 0, 0, 1, -1),
    mark: fc.constantFrom('e', 'E'),
    plus: fc.constantFrom('', '+'),
  })
  .map(({ value, zeros, moved, off, mark, plus }) => {
    const sign = value < 0n ? '-' : '';
    const digits = String(value).replace('-', '') + '0'.repeat(zeros);
    const padded = digits.padStart(digits.length + 31, '0').padEnd(digits.length + 62, '0');
    const point = 31 + digits.length + moved;
    const whole = padded.slice(0, point).replace(/^0+(?=\d)/, '');
    const power = off - moved - zeros;
    return `${sign}${whole}.${padded.slice(point)}${mark}${power < 0 ? '' : plus}${power}`;
  });

t.test('the id is the exact value of a number in any notation, or is refused', async (t) => {
  let accepted = 0;
  fc.assert(
    fc.property(fc.oneof(int64.map(String), spelling), (text) => {
      const id = idOf(text);
      if (id !== undefined) accepted++;
      return id === int64Of(text);
    }),
    { numRuns: 20_000 },
  );
  t.ok(accepted > 2_000, 'enough of them are ids');
});

const SPELLINGS: readonly [spelling: string, id: bigint | undefined][] = [
  ['7.0', 7n],
  ['1E+2', 100n],
  ['10e-1', 1n],
  ['0.1e1', 1n],
  ['-0', 0n],
  ['0e999999999999999999999', 0n],
  ['0.000e-999999999999999999999', 0n],
  ['1e999999999999999999999', undefined],
  ['-1e-999999999999999999999', undefined],
  ['7.0000000000000000000001', undefined],
  ['9007199254740993', 2n ** 53n + 1n],
  ['9223372036854775807000e-3', MAX],
  ['9223372036854775807.1', undefined],
  ['-9223372036854775808.000', MIN],
  ['\t\r\n 7 \n', 7n],
];

t.test('unusual notations of an id are read exactly', async (t) => {
  for (const [spelling, id] of SPELLINGS) t.equal(idOf(spelling), id, JSON.stringify(spelling));
  for (const value of ['"7"', 'null', 'true', '[7]', '{"id":7}', '""', '"\\"7"'])
    t.equal(idOf(value), undefined, value);
});

t.test('a number of millions of characters is read exactly', async (t) => {
  // At a cost that is not linear, the longest of these would not come to an end.
  for (const length of [1_000, 1_000_000]) {
    const nines = '9'.repeat(length);
    const zeros = '0'.repeat(length);
    const rows: readonly [about: string, spelling: string, id: bigint | undefined][] = [
      ['digits', nines, undefined],
      ['zeros behind the point', `7.${zeros}`, 7n],
      ['zeros that the exponent takes away', `7${zeros}e-${length}`, 7n],
      ['one zero too few', `7${zeros}e-${length + 1}`, undefined],
      ['zeros in front that the exponent takes away', `0.${zeros}7e${length + 1}`, 7n],
      ['an exponent', `7e${nines}`, undefined],
      ['an exponent of nothing', `0e${nines}`, 0n],
      ['white space', `${' '.repeat(length)}7${'\n'.repeat(length)}`, 7n],
    ];
    for (const [about, spelling, id] of rows) t.equal(idOf(spelling), id, `${length}: ${about}`);
  }
});

t.test('the id is found wherever it is in the object', async (t) => {
  const id = 2n ** 53n + 1n;
  const texts = [
    `{"id":${id},"name":"fern"}`,
    `{"name":"fern","id":${id}}`,
    `{"name":"fern","a":{"id":1},"id":${id},"b":[{"id":2}]}`,
    `{"name":"fern","a":"\\"id\\":1","id":${id},"b":"{\\\\","c":"}"}`,
    `{"name":"fern","a":["}",{"]":"\\\\\\""},[]],"id":${id},"b":{}}`,
    `{"name":"fern","\\"id":1,"id ":2,"ID":3,"id":${id}}`,
    `{"name":"fern","\\u0069\\u0064":${id}}`,
    `{"n\\u0061me":"fern","i\\u0064":${id}}`,
    ` \n{ "name" : "fern" ,\t"id" :\r\n${id}\n}\n `,
  ];
  for (const text of texts) t.strictSame(read(text), { id, name: 'fern' }, text);
});

t.test('a repeated id, name or tag is refused, even if its name is escaped', async (t) => {
  const rows: readonly [member: string, text: string][] = [
    ['id', '{"id":1,"id":1,"name":"fern"}'],
    ['id', '{"id":1,"name":"fern","\\u0069d":2}'],
    ['id', '{"\\u0069\\u0064":1,"id":2,"name":"fern"}'],
    ['id', '{"id":null,"id":1,"name":"fern"}'],
    ['id', '{"id":1,"name":"fern","a":{"b":[1,2]},"id":1}'],
    ['name', '{"id":1,"name":"fern","name":"fern"}'],
    ['name', '{"id":1,"name":"a","\\u006eame":"b"}'],
    ['tag', '{"id":1,"name":"fern","tag":"a","tag":"b"}'],
    ['tag', '{"tag":"","id":1,"name":"fern","t\\u0061g":""}'],
  ];
  for (const [member, text] of rows)
    t.strictSame(read(text), { kind: 'json', message: `${member}: must not be given twice` }, text);
});

t.test('members that a plant does not have are allowed, even twice, and not stored', async (t) => {
  for (const name of ['__proto__', 'constructor', 'hasOwnProperty', 'crc32', '', 'Id', 'id2']) {
    const text = `{${JSON.stringify(name)}:{"id":2,"tag":"x"},"id":1,"name":"fern"}`;
    const plant = parse(text);
    t.strictSame(plant, { id: 1n, name: 'fern' }, text);
    t.equal(Object.getPrototypeOf(plant), Object.prototype, `${text}: a plain object`);
  }
  const texts = [
    '{"id":1,"name":"fern","a":1,"a":{"id":2,"id":3,"name":4}}',
    '{"a":[{"tag":1},{"tag":2,"tag":3}],"id":1,"name":"fern"}',
    '{"a":"{\\"id\\":1,\\"id\\":2}","id":1,"name":"fern"}',
  ];
  for (const text of texts) t.strictSame(read(text), { id: 1n, name: 'fern' }, text);
  const inherited = '{"__proto__":{"id":1,"name":"fern"}}';
  t.strictSame(read(inherited), invalid(ID_RULE, NAME_RULE), 'members are not inherited');
});

/** JSON of a string in which every UTF-16 unit is escaped. */
function escaped(text: string): string {
  const units = text.split('').map((unit) => unit.charCodeAt(0).toString(16).padStart(4, '0'));
  return `"${units.map((unit) => `\\u${unit}`).join('')}"`;
}

/** Whether a string comes back as name and tag, in the shortest and in the longest spelling. */
function comesBack(text: string): boolean {
  return [JSON.stringify(text), escaped(text)].every((json) => {
    const plant = parse(`{"id":1,"name":${json},"tag":${json}}`);
    return !(plant instanceof PlantFault) && plant.name === text && plant.tag === text;
  });
}

const STRINGS: Readonly<Record<string, string>> = {
  'an empty one': '',
  'every control character': String.fromCharCode(...Array(32).keys(), 127),
  'quotes and backslashes': '"\\"\\\\"',
  'what looks like a member': '","id":2,"name":"',
  'lone surrogates': '\ud83c \udf3f \udf3f\ud83c',
  'one character of each plane': String.fromCodePoint(
    ...Array.from({ length: 17 }, (_, plane) => 0x10000 * plane + 0xfffd),
  ),
  'noncharacters and a byte order mark': '\ufeff\ufffe\uffff\ufdd0',
  'separators of lines': '\u2028\u2029\u0085',
  'letters and their combined forms': 'e\u0301\u00e9',
  'a megabyte': 'farn\u{1f33f}'.repeat(131_072),
};

t.test('name and tag can be any strings, and are read unchanged', async (t) => {
  for (const [about, text] of Object.entries(STRINGS)) t.ok(comesBack(text), about);
  t.strictSame(read('{"id":1,"name":""}'), { id: 1n, name: '' }, 'no tag is not an empty tag');
  fc.assert(fc.property(fc.string({ unit: 'binary' }), comesBack));
  const unit = fc.nat(0xffff).map((code) => String.fromCharCode(code));
  fc.assert(fc.property(fc.string({ unit }), comesBack));
});

t.test('the message lists every fault of a NewPlant', async (t) => {
  // The values of each member, and the faults that they have. An empty value is a missing member.
  const ids = { '7': [], '': [ID_RULE], null: [ID_RULE], '"7"': [STRING_RULE], '1.5': [ID_RULE] };
  const names = { '"fern"': [], '': [NAME_RULE], null: [NAME_RULE], '7': [NAME_RULE] };
  const tags = { '': [], '"x"': [], null: [NULL_RULE], '[]': [TAG_RULE] };
  for (const [id, idFaults] of Object.entries(ids))
    for (const [name, nameFaults] of Object.entries(names))
      for (const [tag, tagFaults] of Object.entries(tags)) {
        const members = Object.entries({ tag, id, name }).filter(([, json]) => json !== '');
        const text = `{${members.map(([member, json]) => `"${member}":${json}`).join()}}`;
        const faults = [...idFaults, ...nameFaults, ...tagFaults];
        const outcome = parse(text);
        t.equal(outcome instanceof PlantFault, faults.length > 0, text);
        if (!(outcome instanceof PlantFault)) continue;
        t.strictSame(plainly(outcome), invalid(...faults), text);
      }
});

t.test('JSON that is not an object is not a NewPlant', async (t) => {
  for (const text of ['null', '7', '"fern"', 'true', '[]', '[{"id":1,"name":"fern"}]', ' 0 '])
    t.strictSame(read(text), NOT_OBJECT, text);
});

/** A plant whose name has these bytes, in hexadecimal. */
function named(bytes: string): Buffer {
  return Buffer.concat(
    ['{"id":1,"name":"', Buffer.from(bytes, 'hex'), '"}'].map((each) => Buffer.from(each)),
  );
}

t.test('a body that is not JSON in UTF-8 is refused, without any of its text', async (t) => {
  const plant = '{"id":1,"name":"fern"}';
  // Some releases of Node know the place, and others do not.
  const invalid = /^the text must be one JSON text in UTF-8; it is not valid( at position \d+)?$/;
  for (const body of [' \n', `${plant}//`, '{"id":1,"name":"fern",}', '{id:1,name:"fern"}'])
    t.match(read(body), { kind: 'json' }, body);
  for (const body of ['{"id":01,"name":"fern"}', '{"id":1,"name":"\n"}', 'id=1&name=fern'])
    t.match(read(body), { kind: 'json', message: invalid }, body);
  t.match(read(Buffer.from(plant, 'utf16le')), { kind: 'json', message: invalid });
  // Latin-1, a character cut short, an overlong NUL, a pair of surrogates (CESU-8), more than U+10FFFF, and no UTF-8.
  for (const bytes of ['e9', 'f09f8c', 'c080', 'eda0bcedbcbf', 'f4908080', 'ff'])
    t.strictSame(read(named(bytes)), notJson('is not UTF-8'), bytes);
  t.strictSame(read(''), notJson('ends too early'));
  t.strictSame(read('{"id":1'), notJson('is not valid at position 7'));
  t.strictSame(read('{"id":1,}'), notJson('is not valid at position 8'));
  t.strictSame(read(`${plant}\n${plant}`), notJson('is not valid at position 23'));
  t.strictSame(read('secret'), notJson('is not valid'));
  t.strictSame(read('secret JSON at position 5'), notJson('is not valid'));
  for (const body of [plant, '{}', 'x', ''])
    t.strictSame(read(`\ufeff${body}`), BYTE_ORDER_MARK, body);
  t.strictSame(read('{"id":1,"name":"\ufeff"}'), { id: 1n, name: '\ufeff' }, 'within a string');
});

t.test('JSON with any depth of nesting is read or refused', async (t) => {
  const depth = 500_000;
  const arrays = '['.repeat(depth) + ']'.repeat(depth);
  const objects = '{"a":'.repeat(depth / 3) + '1' + '}'.repeat(depth / 3);
  t.match(read('['.repeat(1_048_576)), { kind: 'json' });
  t.match(read('{"id":'.repeat(170_000)), { kind: 'json' });
  t.strictSame(read(arrays), NOT_OBJECT);
  for (const deep of [arrays, objects]) {
    t.strictSame(read(`{"a":${deep},"id":1,"name":"fern"}`), { id: 1n, name: 'fern' });
    const faulty = `{"id":${deep},"name":${deep},"tag":${deep}}`;
    t.strictSame(read(faulty), invalid(ID_RULE, NAME_RULE, TAG_RULE));
  }
});

/** The plant in a value that a body parser has parsed, or the fault that it has. */
function readParsed(value: unknown): unknown {
  return plainly(outcomeOf(() => checkNewPlant(value)));
}

t.test('a value that a body parser has parsed has to meet the same rules', async (t) => {
  for (const id of [7, 0, -0, 2 ** 53 - 1, 1 - 2 ** 53]) {
    t.strictSame(readParsed({ id, name: 'fern', more: 1 }), { id: BigInt(id), name: 'fern' });
    t.strictSame(readParsed({ id, name: '', tag: '' }), { id: BigInt(id), name: '', tag: '' });
  }
  const refused: readonly [value: unknown, expected: object][] = [
    [{ id: 1.5, name: 'fern' }, invalid(ID_RULE)],
    [{ id: '7', name: 'fern' }, invalid(STRING_RULE)],
    [{ id: 7, name: 7, tag: 7 }, invalid(NAME_RULE, TAG_RULE)],
    [{}, invalid(ID_RULE, NAME_RULE)],
    [[], NOT_OBJECT],
    [null, NOT_OBJECT],
    [7, NOT_OBJECT],
  ];
  for (const [value, expected] of refused)
    t.strictSame(readParsed(value), expected, JSON.stringify(value));
});

t.test('what a parser may have changed is refused, with the remedy if there is one', async (t) => {
  const rounded =
    'id: may have been rounded by a body parser, which has read it; mount the handler before it';
  for (const id of [2 ** 53, -(2 ** 53), 2 ** 63, -(2 ** 63), Number('9007199254740993')])
    t.strictSame(readParsed({ id, name: 'fern' }), invalid(rounded), String(id));
  for (const id of [2 ** 64, 1e300, Infinity, NaN, 1.5])
    t.strictSame(readParsed({ id, name: 'fern' }), invalid(ID_RULE), String(id));
  const replaced = 'must not contain U+FFFD, which stands for invalid UTF-8 here';
  t.strictSame(readParsed({ id: 7, name: 'f\ufffdrn' }), invalid(`name: ${replaced}`));
  t.strictSame(readParsed({ id: 7, name: 'fern', tag: '\ufffd' }), invalid(`tag: ${replaced}`));
  t.strictSame(readParsed({ id: 2 ** 53, name: 5 }), invalid(rounded, NAME_RULE));
  t.strictSame(
    readParsed({ id: 2 ** 53, name: '\ufffd', tag: null }),
    invalid(rounded, `name: ${replaced}`, NULL_RULE),
    'all faults are named together',
  );
});
