import { STATUS_CODES } from 'node:http';

import { ErrorSchema, Failure, failures } from './failures.js';
import { NewPlantSchema, PlantSchema } from '../plant.js';

const schemas = { Plant: PlantSchema, NewPlant: NewPlantSchema, Error: ErrorSchema };

const json = (schema: keyof typeof schemas) => ({
  'application/json': { schema: { $ref: `#/components/schemas/${schema}` } },
});

/**
 * The 200 and, for each status of a failure, the Error. Functions return failures of the status 400, as others have.
 */
const responses: Record<string, { description: string; content: ReturnType<typeof json> }> = {
  200: { description: 'plant response', content: json('Plant') },
};
for (const failure of Object.values(failures))
  if (failure instanceof Failure) {
    const { status } = failure;
    const description = status === 400 ? 'unexpected error' : String(STATUS_CODES[status]);
    responses[status] = { description, content: json('Error') };
  }

/**
 * The interface of the service as an OpenAPI 3.1 document, with every response that it sends. The
 * package exports it as the file `plant-store/openapi.json`, too. It is an `OpenAPIV3_1.Document` of the
 * package `openapi-types`, which tools such as `@fastify/swagger` use.
 *
 * @example
 * ```ts
 * createServer((req, res) => res.end(JSON.stringify(openapi))).listen(8081);
 * ```
 */
export const openapi = {
  openapi: '3.1.1',
  info: {
    title: 'Plant store',
    // Of the interface, not of the package.
    version: '1.0.0',
    description:
      'Stores plants. A 200 means that the plant is stored durably; a request that got no 200 is ' +
      'always safe to retry.',
    contact: { name: 'Plant Store authors' },
    license: { name: 'MIT', identifier: 'MIT' },
  },
  servers: [{ url: 'http://127.0.0.1:8080' }],
  tags: [{ name: 'plants', description: 'The plants in the store' }],
  security: [{ bearer: [] }],
  paths: {
    '/plants': {
      post: {
        operationId: 'createPlant',
        summary: 'Create a plant',
        description: 'Creates a new plant in the store.',
        tags: ['plants'],
        requestBody: { required: true, content: json('NewPlant') },
        responses,
      },
    },
  },
  components: {
    schemas,
    securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } as const },
  },
};
