/*
 * Documents in the classes of nst/JSONTestSuite. Whether one is valid is decided here, by RFC 8259, and
 * not by a parser.
 */

/** The default of `PLANT_STORE_MAX_BODY`, in bytes. */
const MAX_BODY = 1_048_576;

let lastId = 1_000_000;

/** A plant with an additional member of this value. */
function around(value: Buffer | string): Buffer {
  const id = ++lastId;
  return Buffer.concat([
    Buffer.from(`{"id":${id},"name":"n","more":`),
    Buffer.from(value),
    Buffer.from('}'),
  ]);
}

/** A plant with this text between the quotes of its name. */
function named(text: Buffer | string): Buffer {
  const id = ++lastId;
  return Buffer.concat([
    Buffer.from(`{"id":${id},"name":"`),
    Buffer.from(text),
    Buffer.from('","tag":"t"}'),
  ]);
}

/** A plant with this id. */
const numbered = (id: string): Buffer => Buffer.from(`{"id":${id},"name":"n"}`);
const whole = (text: string): Buffer => Buffer.from(text);
const bytes = (...values: readonly number[]): Buffer => Buffer.from(values);

/** The room for a value in a body of the maximum size. */
const ROOM = MAX_BODY - 60;
const nested = (depth: number, open: string, close: string, inside = ''): string =>
  open.repeat(depth) + inside + close.repeat(depth);

const VALUES = [
  ...['0', '-0', '1', '-1', '10', '123456789012345678901234567890', '0.0', '-0.0', '0.5', '1.25'],
  ...['0e0', '0E+0', '1e1', '1E1', '1e+1', '1e-1', '1E-01', '1.5e300', '1e400', '-1e400', '1e-400'],
  ...['1e00000000000000000001', `1e${'9'.repeat(400)}`, '-0e-0', '20e1', '123e-10000000'],
  ...['null', 'true', 'false', '""', '[]', '{}', '[[]]', '[{}]', '{"":0}', '{"a":{}}', '[1,2]'],
  ...['[ ]', '{ }', ' [ 1 , 2 ] ', '\t1\n', '\r\n1'],
  ...['{"a":1,"a":2}', '{"a" : [ 1 ] }', '["a","b"]'],
  ...['{"id":1,"id":2,"name":3,"name":4}', '["id","id"]', '"id"', '[null,true,false,1,"",[],{}]'],
  ...['{"__proto__":1}', '{"__proto__":{"id":"x"}}'],
  ...['{"constructor":{"prototype":1}}', '"}"', '"{["'],
  ...['"\\"id\\":1"', '{"toString":null,"valueOf":1,"hasOwnProperty":2}', '"\\\\"', '"\\\\\\""'],
];

const BROKEN_VALUES = [
  ...['+1', '01', '-01', '00', '1.', '.1', '-.1'],
  ...['-', '--1', '1e', '1e+', '1E-', '1.e1', '0x1', '0b1'],
  ...['1_000', '1 000', '1,', '0.1.2', '1e1.5'],
  ...['1e1e1', 'NaN', 'Infinity', '-Infinity', 'nan', '1a'],
  ...['\uff11', '- 1', '1-', '2.e-3', '0e', '1eE2'],
  ...['-foo', '123\u00e9', '1/2', '1n', '0o7', '1.0e-'],
  ...['nul', 'True', 'NULL', 'undefined', 'truefalse', 'tru', 'a', "'a'", '`a`', '"', '"a', 'a"'],
  ...['[', ']', '[1', '1]', '[1,]', '[,1]', '[,]', '[1 2]', '[1,,2]', '[1:2]', '["a"', '[1}', '[}'],
  ...['{', '{"a"', '{"a":', '{"a":1', '{"a":1,}', '{,}', '{"a"}', '{"a",1}', '{a:1}', "{'a':1}"],
  ...['{1:1}', '{"a"::1}', '{"a":1 "b":2}', '{"a":1;"b":2}'],
  ...['{:1}', '{"a":1]', '{null:1}', '{[1]:1}'],
  ...['/* */1', '1//', '1#', '(1)', '<1>', '"a"b'],
  ...['"a" "b"', '1 1', '*', '@', '\\u0031', '""""', ''],
  ...['\u00a01', '1\u2028', '\f1', '\v1', '\u200b1'],
  ...['\ufeff1', '1\0', '\0', '...', '[...]', 'new X'],
];

const STRINGS = [
  ...['', ' ', 'a', '\u007f', '/', '\\/', '\\"', '\\\\', '\\b\\f\\n\\r\\t', '\\u0000', '\\u0041'],
  ...['\\uabCD', '\\uD83C\\uDF3F', '\\ud83c', '\\udf3f', '\\udf3f\\ud83c', '\\ud83cx', '\\uffff'],
  ...['\\u2028\\u2029', '\u2028\u2029', '\ufeff', '\\ufeff'],
  ...['\u0080', '\u00ff', '\u0100', '\u07ff'],
  ...['\u0800', '\uffff', '\ufffe', '\ufdd0', '\ufffd', '\u202e', 'e\u0301', '\u00e9', '\u{1f33f}'],
  ...['__proto__', 'constructor', 'toString', '\\\\u0041'],
  ...["'", '<script>', '${x}', '%s%n', '\\u005c'],
];

const BROKEN_STRINGS = [
  ...['\\', '\\x41', '\\a', '\\0', '\\v', "\\'"],
  ...['\\U0041', '\\u', '\\u0', '\\u00', '\\u004', '\\u00g0'],
  ...['\\u{41}', '\\u 041', '\\\u00e9', '\\u-041'],
  ...['\\ud83c\\u', '\\ud83c\\udf3', '\\\n', '\\\\\\', '"'],
  ...Array.from({ length: 0x20 }, (_, code) => String.fromCharCode(code)),
];

/** Invalid UTF-8, after the kind of its fault. */
const NOT_UTF8: readonly (readonly [what: string, bytes: Buffer])[] = [
  ['a lone continuation byte', bytes(0x80)],
  ['the last continuation byte alone', bytes(0xbf)],
  ['a lone first byte of two', bytes(0xc3)],
  ['the first two bytes of three', bytes(0xe2, 0x82)],
  ['the first three bytes of four', bytes(0xf0, 0x9f, 0x8c)],
  ['a first byte of three, then ASCII', bytes(0xe2, 0x28, 0xa1)],
  ['overlong /, two bytes', bytes(0xc0, 0xaf)],
  ['overlong NUL, two bytes', bytes(0xc0, 0x80)],
  ['the last overlong first byte', bytes(0xc1, 0xbf)],
  ['overlong /, three bytes', bytes(0xe0, 0x80, 0xaf)],
  ['the last overlong of three bytes', bytes(0xe0, 0x9f, 0xbf)],
  ['overlong /, four bytes', bytes(0xf0, 0x80, 0x80, 0xaf)],
  ['the last overlong of four bytes', bytes(0xf0, 0x8f, 0xbf, 0xbf)],
  ['a high surrogate', bytes(0xed, 0xa0, 0x80)],
  ['a low surrogate', bytes(0xed, 0xbf, 0xbf)],
  ['a surrogate pair, as in CESU-8', bytes(0xed, 0xa0, 0xbc, 0xed, 0xbc, 0xbf)],
  ['beyond U+10FFFF', bytes(0xf4, 0x90, 0x80, 0x80)],
  ['five bytes', bytes(0xf8, 0x88, 0x80, 0x80, 0x80)],
  ['six bytes', bytes(0xfc, 0x84, 0x80, 0x80, 0x80, 0x80)],
  ['0xFE', bytes(0xfe)],
  ['0xFF', bytes(0xff)],
  ['Latin-1', bytes(0xe9)],
];

/** Characters at the edges and in the middle of each plane. */
const planes = Array.from({ length: 17 }, (_, plane): [string, Buffer] => {
  const codes = [0x20, 0x100, 0x1234, 0x8000, 0xd7ff, 0xe000, 0xfffd, 0xfffe, 0xffff];
  return [
    `plane ${plane}`,
    named(String.fromCodePoint(...codes.map((code) => plane * 0x10000 + code))),
  ];
});

const utf16 = (littleEndian: boolean, mark: boolean): Buffer => {
  const text = Buffer.from(`${mark ? '\ufeff' : ''}{"id":1,"name":"n"}`, 'utf16le');
  return littleEndian ? text : text.swap16();
};

/** Documents that are plants. */
export const valid: readonly (readonly [what: string, document: Buffer])[] = [
  ...VALUES.map((value): [string, Buffer] => [value, around(value)]),
  ...STRINGS.map((text): [string, Buffer] => [text, named(text)]),
  ...planes,
  ['white space around', whole(' \t\r\n{"id":1,"name":"n"} \t\r\n')],
  ['escaped member names', whole('{"\\u0069d":2,"n\\u0061me":"n"}')],
  ['a member __proto__', whole('{"__proto__":{"id":"x","name":1},"id":3,"name":"n"}')],
  [
    'members named as those of Object.prototype',
    whole('{"constructor":1,"toString":2,"id":4,"name":"n"}'),
  ],
  ['members in another order', whole('{"tag":"","x":[{"id":1}],"name":"","id":5}')],
  ['nested arrays of the maximum size', around(nested(ROOM / 2, '[', ']'))],
  ['nested objects of the maximum size', around(nested(Math.floor(ROOM / 6), '{"":', '}', '0'))],
  ['a name of the maximum size', named('x'.repeat(ROOM))],
  ['a name of escapes', named('\\u0000'.repeat(ROOM / 6))],
  ['a name beyond Latin-1', named('\u{1f33f}'.repeat(ROOM / 4))],
  ['a number of a million digits', around('9'.repeat(1_000_000))],
  ['a fraction of a million digits', around(`0.${'3'.repeat(1_000_000)}`)],
  ['an exponent of a million digits', around(`1e${'9'.repeat(1_000_000)}`)],
  ['an id with a fraction of a million zeros', numbered(`70.${'0'.repeat(1_000_000)}`)],
  ['an id with a million zeros and an exponent', numbered(`71${'0'.repeat(1_000_000)}e-1000000`)],
  ['an id with a fraction and a large exponent', numbered(`0.${'0'.repeat(1_000_000)}72e1000002`)],
  ['an exponent with a million zeros', numbered(`73e${'0'.repeat(1_000_000)}`)],
  ['0 with an exponent of a million digits', numbered(`0e${'9'.repeat(1_000_000)}`)],
  ['the largest id', numbered('9223372036854775807')],
  ['the smallest id', numbered('-9223372036854775808')],
  ['a hundred thousand members', around(`{${'"a":0,'.repeat(100_000)}"b":1}`)],
];

/** Documents that are not plants, and the `error` of their answer. */
export const invalid: readonly (readonly [what: string, document: Buffer, error: number])[] = [
  ...BROKEN_VALUES.map((value): [string, Buffer, number] => [value, around(value), 400]),
  ...BROKEN_STRINGS.map((text): [string, Buffer, number] => [
    JSON.stringify(text),
    named(text),
    400,
  ]),
  ...NOT_UTF8.flatMap(([what, text]): [string, Buffer, number][] => [
    [`${what}, in a string`, named(text), 400],
    [`${what}, elsewhere`, around(text), 400],
    [`${what}, alone`, text, 400],
  ]),
  ['an empty body', whole(''), 400],
  ['white space', whole(' \n'), 400],
  ['a byte order mark', whole('\ufeff{"id":1,"name":"n"}'), 400],
  ['half a byte order mark', Buffer.concat([bytes(0xef, 0xbb), numbered('1')]), 400],
  ['UTF-16, little-endian', utf16(true, false), 400],
  ['UTF-16, big-endian', utf16(false, false), 400],
  ['UTF-16, little-endian, with a mark', utf16(true, true), 400],
  ['UTF-16, big-endian, with a mark', utf16(false, true), 400],
  ['two documents', whole('{"id":1,"name":"n"}{"id":2,"name":"n"}'), 400],
  ['JSON lines', whole('{"id":1,"name":"n"}\n{"id":2,"name":"n"}\n'), 400],
  ['a trailing comma', whole('{"id":1,"name":"n",}'), 400],
  ['an extra brace', whole('{"id":1,"name":"n"}}'), 400],
  ['a missing brace', whole('{"id":1,"name":"n"'), 400],
  ['a trailing NUL', whole('{"id":1,"name":"n"}\0'), 400],
  ['unclosed arrays', around('['.repeat(ROOM)), 400],
  ['unclosed objects', around('{"":'.repeat(ROOM / 4)), 400],
  ['only brackets', whole('['.repeat(MAX_BODY)), 400],
  ['an id twice', whole('{"id":1,"id":1,"name":"n"}'), 400],
  ['an id twice, once escaped', whole('{"id":1,"\\u0069\\u0064":1,"name":"n"}'), 400],
  ['a name twice', whole('{"id":1,"name":"n","name":"n"}'), 400],
  ['a tag twice', whole('{"id":1,"tag":"","name":"n","tag":null}'), 400],
  ...[
    '[]',
    'null',
    'true',
    '1',
    '"a"',
    '[{"id":1,"name":"n"}]',
    '{}',
    '{"id":1}',
    '{"name":"n"}',
  ].map((text): [string, Buffer, number] => [text, whole(text), 422]),
  ...['null', '"1"', 'true', '[]', '{}', '[1]', '1.5', '1e-1', '9223372036854775808', '1e19'].map(
    (id): [string, Buffer, number] => [`the id ${id}`, numbered(id), 422],
  ),
  ['the id below the smallest', numbered('-9223372036854775809'), 422],
  ['an id with a fraction', numbered('9007199254740993.5'), 422],
  ['an id of a million digits', numbered('9'.repeat(1_000_000)), 422],
  ['an id close to 0', numbered(`1e-${'9'.repeat(1_000_000)}`), 422],
  ['an id far out of range', numbered(`1e${'9'.repeat(1_000_000)}`), 422],
  ['an id with a fraction of a million digits', numbered(`7.${'0'.repeat(1_000_000)}1`), 422],
  ['a name in __proto__', whole('{"id":1,"__proto__":{"name":"n"}}'), 422],
  ['a name that is null', whole('{"id":1,"name":null}'), 422],
  ['a tag that is null', whole('{"id":1,"name":"n","tag":null}'), 422],
  ['names in capitals', whole('{"ID":1,"Name":"n"}'), 422],
  [
    'one byte more than the limit',
    Buffer.from(`{"id":1,"name":"${'x'.repeat(MAX_BODY - 17)}"}`),
    413,
  ],
];
