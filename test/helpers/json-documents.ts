import fc from 'fast-check';

import { isRequired, MEMBERS, type Member } from '../../dist/plant.js';
import { OPTIONAL } from './plants.js';

/* Bodies: plants in JSON, valid or almost valid, other JSON, and damaged JSON. */

type Text = fc.Arbitrary<string>;

const joined = (...parts: Text[]): Text => fc.tuple(...parts).map((texts) => texts.join(''));

/** Generates `usual` values `weight` times as often as `other` ones. */
const mostly = <T>(
  weight: number,
  usual: fc.Arbitrary<T>,
  other: fc.Arbitrary<T>,
): fc.Arbitrary<T> => fc.oneof({ arbitrary: usual, weight }, { arbitrary: other, weight: 1 });

const space = mostly(
  5,
  fc.constant(''),
  fc.string({ unit: fc.constantFrom(' ', '\t', '\n', '\r') }),
);

/** Characters and words that a JSON parser could misread within a string. */
const unit = fc.constantFrom(...Array.from('"\\{}[],:a\0\n\ufffd\u{1f33f}'), 'id', '\ud83c');
const value = fc.json({ maxDepth: 3, stringUnit: unit });

const ESCAPES = ['\\/', '\\u0022', '\\u005C', '\\ud83c', '\\uDF3F'];
const string = fc
  .array(
    mostly(
      5,
      unit.map((text) => JSON.stringify(text).slice(1, -1)),
      fc.constantFrom(...ESCAPES),
    ),
  )
  .map((units) => `"${units.join('')}"`);

const LIMITS = [-(2n ** 63n), 2n ** 63n - 1n, 2n ** 53n];
const beside = fc.tuple(fc.constantFrom(...LIMITS), fc.bigInt({ min: -1n, max: 1n }));
const integer = fc.oneof(
  fc.bigInt({ min: 0n, max: 30n }),
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  beside.map(([limit, distance]) => limit + distance),
);
/**
 * An integer, ten times an integer, or a tenth of one, written with a decimal point and an
 * exponent.
 */
const notation = fc
  .tuple(integer, fc.nat(25), fc.integer({ min: 1, max: 40 }), fc.constantFrom(0, 0, 0, 1, -1))
  .map(([value, zeros, decimals, off]) => {
    const digits = String(value * 10n ** BigInt(zeros)).replace('-', '');
    const padded = digits.padStart(decimals + 1, '0');
    const power = decimals - zeros + off;
    const exponent = power < 0 ? `e${power}` : `E+${power}`;
    const sign = value < 0n ? '-' : '';
    return `${sign}${padded.slice(0, -decimals)}.${padded.slice(-decimals)}${exponent}`;
  });
const id = fc.oneof(
  joined(integer.map(String), fc.constantFrom('', '', '.000', '00e-2', '.5e1', 'E+0', '.5')),
  notation,
);

const member = (name: Text, content: Text): Text =>
  joined(space, name, space, fc.constant(':'), space, mostly(20, content, value), space);
/** A member. A few have a name that is written with an escape. */
const named = (name: string, content: Text): Text => {
  const code = name.charCodeAt(0).toString(16).padStart(4, '0');
  const escaped = fc.constant(`"\\u${code}${name.slice(1)}"`);
  return member(mostly(9, fc.constant(`"${name}"`), escaped), content);
};

const membersNamed = (names: readonly Member[]): Text[] => names.map((name) => named(name, string));

const required = [named('id', id), ...membersNamed(MEMBERS.filter(isRequired))];
const optional = membersNamed(OPTIONAL);
const otherName = fc.oneof(fc.constantFrom('"__proto__"', '"toString"', '"ID"', '"crc32"'), string);

const otherMember = member(otherName, value);

/** A plant. A few lack a member, or have a member twice. */
const plant = fc
  .tuple(
    fc.tuple(...required),
    fc.array(mostly(9, fc.oneof(...optional, otherMember, otherMember), fc.oneof(...required)), {
      maxLength: 3,
    }),
    mostly(15, fc.constant(0), fc.constant(1)),
  )
  .chain(([whole, others, missing]) => {
    const members = [...whole, ...others];
    return fc.shuffledSubarray(members, { minLength: members.length - missing });
  })
  .map((members) => `{${members.join()}}`);

/** Bytes of which a few were removed, replaced or inserted. */
const damaged = (bytes: fc.Arbitrary<Buffer>): fc.Arbitrary<Buffer> =>
  fc
    .tuple(bytes, fc.nat(), fc.nat({ max: 4 }), fc.uint8Array({ maxLength: 3 }))
    .map(([all, place, cut, put]) => {
      const at = place % (all.length + 1);
      return Buffer.concat([all.subarray(0, at), put, all.subarray(at + cut)]);
    });

const whole = joined(space, mostly(9, plant, value), space).map((text) => Buffer.from(text));

export const document = mostly(7, whole, damaged(whole));
