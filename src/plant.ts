import type { XStatic } from 'typebox/schema';

/** The range of an id, an int64. */
export const MIN_ID = -(2n ** 63n);
export const MAX_ID = 2n ** 63n - 1n;

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
  },
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
