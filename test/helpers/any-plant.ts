import fc from 'fast-check';

import { MAX_ID, MEMBERS, MIN_ID, PlantSchema, type NewPlant } from '../../dist/plant.js';

/**
 * Strings of any UTF-16 code units, with surrogates in pairs, alone and in the wrong order. They do
 * not use fast-check's unit `binary`, because it takes 0.7 s to prepare.
 */
export const anyString = fc.oneof(
  fc.string({ unit: 'grapheme' }),
  fc.array(fc.integer({ min: 0, max: 0xffff })).map((units) => String.fromCharCode(...units)),
  fc
    .array(fc.constantFrom('\0', '\n', '"', '\\', '\ud800', '\udfff', '\u{1f33f}'))
    .map((each) => each.join('')),
);

const anyValues: Record<string, fc.Arbitrary<unknown>> = {
  id: fc.bigInt({ min: MIN_ID, max: MAX_ID }),
  ...Object.fromEntries(MEMBERS.map((member) => [member, anyString])),
};

export const anyPlant = fc.record(anyValues, {
  requiredKeys: ['id', ...PlantSchema.required],
  noNullPrototype: true,
}) as fc.Arbitrary<NewPlant>;
