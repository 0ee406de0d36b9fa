import fc from 'fast-check';

import {
  isRequired,
  MAX_ID,
  MEMBERS,
  MIN_ID,
  plantOf,
  PlantSchema,
  type Member,
  type NewPlant,
  type Plant,
} from '../dist/plant.js';

/* Plants with the members of the schema, whichever these are. */

/**
 * A string of any UTF-16 code units: surrogates in pairs, alone and in the wrong order. Not of fast-check's unit
 * `binary`, which takes 0.7 s to prepare.
 */
export const anyString = fc.oneof(
  fc.string({ unit: 'grapheme' }),
  fc.array(fc.integer({ min: 0, max: 0xffff })).map((units) => String.fromCharCode(...units)),
  fc
    .array(fc.constantFrom('\0', '\n', '"', '\\', '\ud800', '\udfff', '\u{1f33f}'))
    .map((each) => each.join('')),
);

/** A value of a member that JSON writes without escapes. */
export const PLAIN = 'f\u00e4rn \u{1f33f}';

export const OPTIONAL = MEMBERS.filter((member) => !isRequired(member));

const anyValues: Record<string, fc.Arbitrary<unknown>> = {
  id: fc.bigInt({ min: MIN_ID, max: MAX_ID }),
  ...Object.fromEntries(MEMBERS.map((member) => [member, anyString])),
};

export const anyPlant = fc.record(anyValues, {
  requiredKeys: ['id', ...PlantSchema.required],
  noNullPrototype: true,
}) as fc.Arbitrary<NewPlant>;

const sets = OPTIONAL.reduce<Member[][]>(
  (sets, member) => sets.flatMap((set) => [set, [...set, member]]),
  [[...PlantSchema.required]],
);

/** For each set of optional members, a plant that has these. */
export const PLANTS_OF_EACH_SHAPE: readonly NewPlant[] = sets.map((set, n) => {
  const values = set.map((member) => [member, PLAIN]);
  return plantOf(BigInt(100 + n), Object.fromEntries(values) as Plant);
});

/** The JSON of a plant. */
export function inJson({ id, ...members }: NewPlant): string {
  return JSON.stringify(members).replace('{', `{"id":${id},`);
}
