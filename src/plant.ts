import type { XStatic } from 'typebox/schema';

/** JSON Schema of the record that a 200 carries. */
export const PlantSchema = {
  type: 'object',
  properties: {
    name: { type: 'string', description: 'The name of the plant' },
    tag: { type: 'string', description: 'Tag that specifies the type of the plant' },
  },
  required: ['name'],
} as const;

/** JSON Schema of the record that a client sends: a Plant with an id. */
export const NewPlantSchema = {
  type: 'object',
  properties: {
    id: { type: 'integer', format: 'int64', description: 'Identification number of the plant' },
    ...PlantSchema.properties,
  },
  required: ['id', ...PlantSchema.required],
} as const;

/** A plant as the service answers it: without its id. */
export type Plant = Readonly<XStatic<typeof PlantSchema>>;

/**
 * A plant as it is stored.
 *
 * `id` is an int64, from -2^63 to 2^63 - 1: a `bigint`, because a `number` is exact only up to 2^53.
 */
export type NewPlant = Plant & { readonly id: bigint };
