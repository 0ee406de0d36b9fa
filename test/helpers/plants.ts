import {
  isRequired,
  MEMBERS,
  plantOf,
  PlantSchema,
  type Member,
  type NewPlant,
  type Plant,
} from '../../dist/plant.js';

/* The plants of tests in which any plant would do. In JSON, each has more bytes than UTF-16 code units. */

export const FERN: NewPlant = { id: 7n, name: 'fern', tag: 'drau\u00dfen' };
export const IVY: NewPlant = { id: 8n, name: 'ivy \u{1f33f}' };
export const MOSS: NewPlant = { id: 9n, name: 'moss \ud800', tag: '\u82d4' };
export const REED: NewPlant = { id: 10n, name: 'r\u00e9ed' };

/** Plants with the ids from 1 on. */
export function plantsNamed(...names: string[]): NewPlant[] {
  return names.map((name, index) => ({ id: BigInt(index + 1), name, tag: '\u82d4' }));
}

/** The same, all of one name. */
export function manyPlants(count: number, name = 'fern'): NewPlant[] {
  return plantsNamed(...Array<string>(count).fill(name));
}

/** The JSON of a plant. */
export function inJson({ id, ...members }: NewPlant): string {
  return JSON.stringify(members).replace('{', `{"id":${id},`);
}

/** A request whose body this is stores FERN. */
export const FERN_JSON = inJson(FERN);

/* Plants with the members of the schema, whichever these are. */

/** A value of a member that JSON writes without escapes. */
export const PLAIN = 'f\u00e4rn \u{1f33f}';

export const OPTIONAL = MEMBERS.filter((member) => !isRequired(member));

const sets = OPTIONAL.reduce<Member[][]>(
  (sets, member) => sets.flatMap((set) => [set, [...set, member]]),
  [[...PlantSchema.required]],
);

/** For each set of optional members, a plant that has these. */
export const PLANTS_OF_EACH_SHAPE: readonly NewPlant[] = sets.map((set, n) => {
  const values = set.map((member) => [member, PLAIN]);
  return plantOf(BigInt(100 + n), Object.fromEntries(values) as Plant);
});
