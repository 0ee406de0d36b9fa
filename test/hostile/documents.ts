import fc from 'fast-check';

/* Bodies, by a grammar of JSON that knows what the program looks at. */

type Text = fc.Arbitrary<string>;

/** A text in which some come often, others not. */
const often = (weight: number, arbitrary: Text): fc.WeightedArbitrary<string> => ({
  arbitrary,
  weight,
});
const joined = (...parts: Text[]): Text => fc.tuple(...parts).map((texts) => texts.join(''));
const list = (item: Text, maxLength: number, separator = ''): Text =>
  fc.array(item, { maxLength }).map((items) => items.join(separator));

const space = fc.oneof(often(5, fc.constant('')), list(fc.constantFrom(' ', '\t', '\n', '\r'), 3));
const padded = (text: Text): Text => joined(space, text, space);

const character = fc
  .string({ unit: 'binary', minLength: 1, maxLength: 2 })
  .map((text) => JSON.stringify(text).slice(1, -1));
const hex = fc.integer({ min: 0, max: 0xffff }).map((code) => code.toString(16).padStart(4, '0'));
const escape = fc.oneof(
  fc.constantFrom('\\"', '\\\\', '\\/', '\\b', '\\f', '\\n', '\\r', '\\t', '\\u0000', '\\ud83c'),
  hex.map((digits) => `\\u${digits}`),
  hex.map((digits) => `\\u${digits.toUpperCase()}`),
);
const string = list(fc.oneof(often(3, character), often(1, escape)), 12).map((s) => `"${s}"`);

const digits = fc.stringMatching(/^\d{1,25}$/);
const integer = fc.oneof(fc.constant('0'), fc.stringMatching(/^[1-9]\d{0,22}$/));
const sign = fc.constantFrom('', '-');
const exponent = joined(fc.constantFrom('e', 'E'), fc.constantFrom('', '+', '-'), digits);
const number = joined(
  sign,
  integer,
  fc.oneof(fc.constant(''), joined(fc.constant('.'), digits)),
  fc.oneof(fc.constant(''), exponent),
);

const EDGES = [
  2n ** 63n - 1n,
  2n ** 63n,
  -(2n ** 63n),
  -(2n ** 63n) - 1n,
  2n ** 53n,
  2n ** 53n + 1n,
];
const anId = fc.oneof(
  fc.bigInt({ min: 0n, max: 30n }),
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  fc.constantFrom(...EDGES),
);

/** The same number, spelled in other ways. */
const idText = fc
  .tuple(anId, fc.integer({ min: 0, max: 5 }), fc.integer({ min: 1, max: 30 }))
  .map(([id, way, n]) => {
    const text = String(id);
    const shifted = text.length > 3 ? `${text.slice(0, -2)}.${text.slice(-2)}e2` : `${text}e0`;
    const ways = [text, text, `${text}.${'0'.repeat(n)}`, `${text}${'0'.repeat(n)}e-${n}`];
    return [...ways, shifted, `${text}E+00`][way] ?? text;
  });

const { value } = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.constantFrom('null', 'true', 'false', '{}', '[]'),
    number,
    string,
    list(padded(tie('value')), 4, ',').map((items) => `[${items}]`),
    list(joined(padded(string), fc.constant(':'), padded(tie('value'))), 4, ',').map(
      (items) => `{${items}}`,
    ),
  ),
}));

const SPELLINGS = { id: '"\\u0069d"', name: '"n\\u0061me"', tag: '"\\u0074\\u0061\\u0067"' };
const key = (name: keyof typeof SPELLINGS): Text =>
  fc.oneof(often(9, fc.constant(`"${name}"`)), often(1, fc.constant(SPELLINGS[name])));

const member = (name: Text, content: Text): Text =>
  joined(padded(name), fc.constant(':'), padded(content));
const idMember = member(key('id'), fc.oneof(often(12, idText), often(2, number), often(1, value)));
const nameMember = member(key('name'), fc.oneof(often(12, string), often(1, value)));
const tagMember = member(key('tag'), fc.oneof(often(8, string), often(1, value)));
const NAMES = ['__proto__', 'constructor', 'toString', 'ID', 'id ', 'i', 'nam', 'crc32', ''];
const otherMember = member(
  fc.oneof(fc.constantFrom(...NAMES.map((name) => JSON.stringify(name))), string),
  value,
);

const usually = (arbitrary: Text): fc.Arbitrary<string[]> =>
  fc.oneof(
    { arbitrary: fc.array(arbitrary, { minLength: 1, maxLength: 1 }), weight: 15 },
    { arbitrary: fc.constant<string[]>([]), weight: 1 },
  );
const maybe = (arbitrary: Text): fc.Arbitrary<string[]> => fc.array(arbitrary, { maxLength: 1 });
const rarely = (arbitrary: Text): fc.Arbitrary<string[]> =>
  fc.oneof(
    { arbitrary: fc.constant<string[]>([]), weight: 15 },
    { arbitrary: maybe(arbitrary), weight: 1 },
  );

/** A plant, or what nearly is one. */
const plant = fc
  .tuple(
    usually(idMember),
    usually(nameMember),
    maybe(tagMember),
    fc.array(otherMember, { maxLength: 2 }),
    rarely(fc.oneof(idMember, nameMember, tagMember)),
  )
  .chain((members) => {
    const all = members.flat();
    return fc.shuffledSubarray(all, { minLength: all.length });
  })
  .map((members) => `{${members.join(',')}}`);

const bytesOf = (text: Text): fc.Arbitrary<Buffer> => text.map((each) => Buffer.from(each));

/** Takes bytes away, or puts others in their place. */
const damaged = (bytes: fc.Arbitrary<Buffer>): fc.Arbitrary<Buffer> =>
  fc
    .tuple(bytes, fc.nat(), fc.nat({ max: 2 }), fc.uint8Array({ maxLength: 3 }))
    .map(([all, place, cut, put]) => {
      const at = place % (all.length + 1);
      return Buffer.concat([all.subarray(0, at), put, all.subarray(at + cut)]);
    });

export const document: fc.Arbitrary<Buffer> = fc.oneof(
  { arbitrary: bytesOf(padded(plant)), weight: 12 },
  { arbitrary: damaged(bytesOf(padded(plant))), weight: 3 },
  { arbitrary: bytesOf(padded(value)), weight: 2 },
  { arbitrary: fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)), weight: 1 },
);
