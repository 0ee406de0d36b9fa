import { Compile, type XStatic } from 'typebox/schema';

/** The range of an id, an int64. */
export const MIN_ID = -(2n ** 63n);
export const MAX_ID = 2n ** 63n - 1n;
export const ID_RULE = `id: must be an integer between ${MIN_ID} and ${MAX_ID}`;

/**
 * The JSON Schema of a {@link Plant}, the body of a 200. A rule for plants that is added here holds
 * for new plants only, not for stored ones: see {@link StoredPlant}.
 *
 * @example
 * ```ts
 * import { Compile } from 'typebox/schema';
 *
 * const isPlant = Compile(PlantSchema).Check(JSON.parse(body));
 * ```
 */
export const PlantSchema = {
  type: 'object',
  properties: {
    name: { type: 'string', description: 'The name of the plant' },
    tag: { type: 'string', description: 'Tag that specifies the type of the plant' },
    // `npm run lint`, `npm test` and `npm run check postgres` name what else a new member needs,
    // such as its columns in `postgres/statements.ts`. A keyword such as `maxLength`, which counts
    // code points, needs a sentence in `newMemberFaults`. A type other than a string needs code
    // wherever `MEMBERS` is used.
  } satisfies Record<string, { type: 'string'; description: string; [keyword: string]: unknown }>,
  // Not a readonly array, which the types of OpenAPI documents do not accept.
  required: ['name'] as ['name'],
} as const;

/**
 * The JSON Schema of the body of a request: a Plant with an id. The id is an int64, but only the
 * `format` says so: the schema accepts any integer.
 *
 * @example
 * ```ts
 * import { Compile } from 'typebox/schema';
 *
 * const isNewPlant = Compile(NewPlantSchema).Check({ id: 7, name: 'Boston fern' });
 * ```
 */
export const NewPlantSchema = {
  type: 'object',
  properties: {
    id: {
      type: 'integer',
      format: 'int64',
      description:
        'Identification number of the plant. Clients that hold it in a double, such as a number of ' +
        'JavaScript, round it beyond 2^53: they need an exact type and serializer.',
    },
    ...PlantSchema.properties,
  },
  required: ['id', ...PlantSchema.required] as ['id', 'name'],
} as const;

/**
 * A plant in a response: without its id.
 */
export type Plant = Readonly<XStatic<typeof PlantSchema>>;

/**
 * A plant to be stored. `id` is an int64, from -2^63 to 2^63 - 1: a `bigint`, because a `number` is
 * exact only up to 2^53. `name` and `tag` may be any strings, including empty ones and lone
 * surrogates.
 */
export type NewPlant = Plant & { readonly id: bigint };

/** The members of a stored plant other than its id. */
export type StoredMembers = Readonly<{ name: string }> & Partial<Plant>;

/**
 * A plant that was stored, perhaps by an earlier version. What is stored stays valid: reading it
 * checks the range of the id and the types of the members, and nothing else. The rules that
 * {@link PlantSchema} adds to this, such as a bound or a member that is required, are for new
 * plants.
 */
export type StoredPlant = StoredMembers & { readonly id: bigint };

export type Member = keyof Plant;

/**
 * The members that a stored plant must have. A member that becomes required of new plants does not
 * belong here: plants of earlier versions may lack it.
 */
const REQUIRED_OF_STORED: readonly Member[] = ['name'];

/**
 * The members of a plant other than its id, in the order in which they are written. All of them are
 * strings.
 */
export const MEMBERS = Object.keys(PlantSchema.properties) as readonly Member[];

const schema = Compile(PlantSchema);

export function isRequired(member: Member): boolean {
  return (PlantSchema.required as readonly Member[]).includes(member);
}

/** Values for the members of a plant, before they are checked. */
export type Members = Readonly<Partial<Record<Member, unknown>>>;

/**
 * Whether values keep every rule for the members of a new plant. Asks the schema, so that each of
 * its keywords holds, even one that has no sentence in {@link newMemberFaults}.
 */
export function areNewMembers(values: Members): values is Plant {
  return schema.Check(values);
}

/** Why values cannot be the members of a new plant, in one sentence for each member. */
export function newMemberFaults(values: Members): string[] {
  return typeFaults(values, PlantSchema.required);
}

/** Whether values may be the members of a stored plant. */
export function areStoredMembers(values: Members): values is StoredMembers {
  return storedMemberFaults(values).length === 0;
}

/** Why values cannot be the members of a stored plant, in one sentence for each member. */
export function storedMemberFaults(values: Members): string[] {
  return typeFaults(values, REQUIRED_OF_STORED);
}

/**
 * A sentence for each member that is not a string, or that is required and missing. For `null` in
 * an optional member, it says to leave the member out.
 */
function typeFaults(values: Members, required: readonly Member[]): string[] {
  return MEMBERS.filter((member) => {
    const value = values[member];
    return value === undefined ? required.includes(member) : typeof value !== 'string';
  }).map((member) => {
    const isNull = values[member] === null && !required.includes(member);
    return `${member}: must be a string${isNull ? ', or be left out' : ''}`;
  });
}

/** Builds a plant from an id and the members of an object, which may have other members, too. */
export function plantOf(id: bigint, members: Plant): NewPlant;
export function plantOf(id: bigint, members: StoredMembers): StoredPlant;
export function plantOf(id: bigint, members: StoredMembers): StoredPlant {
  const plant: Record<string, unknown> = { id };
  for (const member of MEMBERS) {
    const value = members[member];
    if (value !== undefined) plant[member] = value;
  }
  return plant as StoredPlant;
}

/**
 * Checks a new plant and copies it, so that the caller cannot modify it while it is pending. The
 * `add` of a store calls this before anything else.
 *
 * A plant of an earlier version that breaks a rule of {@link PlantSchema} is refused, even if it is
 * stored: it can be read, but not added again.
 *
 * @throws TypeError if the id is not a bigint, or another member breaks a rule of the schema.
 * @throws RangeError if the id is not an int64.
 *
 * @example The id is checked even in untyped code:
 * ```ts
 * copyPlant(JSON.parse('{"id":7,"name":"Boston fern"}')); // TypeError: id: must be a bigint, such as 5n
 * ```
 */
export function copyPlant(plant: NewPlant): NewPlant {
  // What untyped code passes may be anything.
  const given = plant as NewPlant | null | undefined;
  const id: unknown = given?.id;
  requireInt64(id);
  const copy = plantOf(id, plant);
  if (!areNewMembers(copy)) throw new TypeError(newMemberFaults(copy).join('; '));
  return copy;
}

/**
 * @throws TypeError if the id is not a bigint.
 * @throws RangeError if it is not an int64.
 */
export function requireInt64(id: unknown): asserts id is bigint {
  if (typeof id !== 'bigint') throw new TypeError('id: must be a bigint, such as 5n');
  if (!isInt64(id)) throw new RangeError(ID_RULE);
}

export function isInt64(id: bigint): boolean {
  return id >= MIN_ID && id <= MAX_ID;
}

/** The members of a plant other than its id in JSON, without the braces. */
export function membersInJson(plant: StoredMembers): string {
  let json = '';
  for (const member of MEMBERS) {
    const value = plant[member];
    if (value === undefined) continue;
    json += `${json && ','}"${member}":${stringInJson(value)}`;
  }
  return json;
}

/**
 * Matches the characters that JSON escapes: control characters, quotes, backslashes and lone
 * surrogates. For the sake of the surrogates, it matches everything beyond ASCII.
 */
const MAY_NEED_ESCAPE = /[^ !#-[\]-~]/;

/** Returns what `JSON.stringify` returns, which takes four times as long as the test (Node 24). */
function stringInJson(value: string): string {
  return MAY_NEED_ESCAPE.test(value) ? JSON.stringify(value) : `"${value}"`;
}

/**
 * The source of a regular expression that matches a comma and {@link membersInJson} of a stored
 * plant, provided that no string in it has an escape. `space` is the source for the space that may
 * follow a comma or colon.
 */
export function membersPattern(space = ''): string {
  return MEMBERS.map((member) => {
    const pattern = String.raw`,${space}"${member}":${space}"[^"\\\0-\x1f]*"`;
    return REQUIRED_OF_STORED.includes(member) ? pattern : `(?:${pattern})?`;
  }).join('');
}
