import {
  isRequired,
  MEMBERS,
  plantOf,
  PlantSchema,
  type Member,
  type NewPlant,
  type Plant,
} from '../../dist/plant.js';

/* Plants for tests in which any plant would do. Each has more bytes in JSON than UTF-16 units. */

export const FERN: NewPlant = { id: 7n, name: 'fern', tag: 'drau\u00dfen' };
export const IVY: NewPlant = { id: 8n, name: 'ivy \u{1f33f}' };
export const MOSS: NewPlant = { id: 9n, name: 'moss \ud800', tag: '\u82d4' };
export const REED: NewPlant = { id: 10n, name: 'r\u00e9ed' };

/** Plants with these names and the ids 1, 2, 3 and so on. */
export function plantsNamed(...names: string[]): NewPlant[] {
  return names.map((name, index) => ({ id: BigInt(index + 1), name, tag: '\u82d4' }));
}

/** `count` plants with the same name and the ids 1, 2, 3 and so on. */
export function manyPlants(count: number, name = 'fern'): NewPlant[] {
  return plantsNamed(...Array<string>(count).fill(name));
}

/** The JSON of a plant. */
export function inJson({ id, ...members }: NewPlant): string {
  return JSON.stringify(members).replace('{', `{"id":${id},`);
}

/** The body of a request that stores FERN. */
export const FERN_JSON = inJson(FERN);

/* The following plants are derived from the schema. They need no change if it gets a new member. */

/** A value of a member that JSON writes without escapes. */
export const PLAIN = 'f\u00e4rn \u{1f33f}';

export const OPTIONAL = MEMBERS.filter((member) => !isRequired(member));

const sets = OPTIONAL.reduce<Member[][]>(
  (sets, member) => sets.flatMap((set) => [set, [...set, member]]),
  [[...PlantSchema.required]],
);

/** For each set of optional members, a plant that has these members and no other optional ones. */
export const PLANTS_OF_EACH_SHAPE: readonly NewPlant[] = sets.map((set, n) => {
  const values = set.map((member) => [member, PLAIN]);
  return plantOf(BigInt(100 + n), Object.fromEntries(values) as Plant);
});
