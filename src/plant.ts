import { Compile, type XStatic } from 'typebox/schema';

/** The range of an id, an int64. */
export const MIN_ID = -(2n ** 63n);
export const MAX_ID = 2n ** 63n - 1n;
export const ID_RULE = `id: must be an integer between ${MIN_ID} and ${MAX_ID}`;

/**
 * The JSON Schema of a {@link Plant}, the body of a 200.
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
    // A member of another type needs code of its own in `memberFaults` and `membersPattern`.
  } satisfies Record<string, { readonly type: 'string'; readonly description: string }>,
  // Not a readonly array, which the types of OpenAPI documents do not accept.
  required: ['name'] as ['name'],
} as const;

/**
 * The JSON Schema of the body of a request: a Plant with an id. The id is an int64, but only the `format`
 * says so: the schema accepts any integer.
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
 * A plant to be stored. `id` is an int64, from -2^63 to 2^63 - 1: a `bigint`, because a `number` is exact
 * only up to 2^53. `name` and `tag` may be any strings, including empty ones and lone surrogates.
 */
export type NewPlant = Plant & { readonly id: bigint };

export type Member = keyof Plant;

/** The members of a plant other than its id, in the order in which they are written. All of them are strings. */
export const MEMBERS = Object.keys(PlantSchema.properties) as readonly Member[];

const schema = Compile(PlantSchema);

export function isRequired(member: Member): boolean {
  return (PlantSchema.required as readonly Member[]).includes(member);
}

/** Whether the members of an object, its id apart, are those of a plant. */
export function isPlant(value: object): value is Plant {
  return schema.Check(value);
}

/** The rules that the members of an object, its id apart, break, with the remedy of a common mistake. */
export function memberFaults(value: Readonly<Partial<Record<Member, unknown>>>): string[] {
  const [, errors] = schema.Errors(value);
  const faulty = new Set<string>(
    errors.flatMap((error) =>
      error.keyword === 'required' ? error.params.requiredProperties : error.instancePath.slice(1),
    ),
  );
  return MEMBERS.filter((member) => faulty.has(member)).map((member) => {
    const isNull = !isRequired(member) && value[member] === null;
    return `${member}: must be a string${isNull ? ', or be left out' : ''}`;
  });
}

/** Puts a plant together from an id and the members of an object that has them, and may have more. */
export function plantOf(id: bigint, members: Plant): NewPlant {
  const plant: Record<string, unknown> = { id };
  for (const member of MEMBERS) {
    const value = members[member];
    if (value !== undefined) plant[member] = value;
  }
  return plant as NewPlant;
}

/**
 * Checks a plant and copies it, so that the caller cannot modify it while it is pending. The `add` of a
 * store calls this before anything else.
 *
 * @throws TypeError if the id is not a bigint, or another member not of the type that the schema gives it.
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
  if (typeof id !== 'bigint') throw new TypeError('id: must be a bigint, such as 5n');
  if (id < MIN_ID || id > MAX_ID) throw new RangeError(ID_RULE);
  const copy = plantOf(id, plant);
  if (!isPlant(copy)) throw new TypeError(memberFaults(copy).join('; '));
  return copy;
}

/** The members of a plant other than its id in JSON, without the braces. */
export function membersInJson(plant: Plant): string {
  let json = '';
  for (const member of MEMBERS) {
    const value = plant[member];
    if (value === undefined) continue;
    json += `${json && ','}"${member}":${JSON.stringify(value)}`;
  }
  return json;
}

/**
 * The source of a regular expression for a comma and {@link membersInJson}, if no string in it has an escape. `space`
 * is the source for the space that may follow a comma or colon.
 */
export function membersPattern(space = ''): string {
  return MEMBERS.map((member) => {
    const pattern = String.raw`,${space}"${member}":${space}"[^"\\\0-\x1f]*"`;
    return isRequired(member) ? pattern : `(?:${pattern})?`;
  }).join('');
}
