import { STATUS_CODES } from 'node:http';

import { ErrorSchema, Failure, failures } from './failures.js';
import { NewPlantSchema, PlantSchema } from '../plant.js';

const schemas = { Plant: PlantSchema, NewPlant: NewPlantSchema, Error: ErrorSchema };

const json = (schema: keyof typeof schemas) => ({
  'application/json': { schema: { $ref: `#/components/schemas/${schema}` } },
});

interface Header {
  readonly description: string;
  readonly schema: { readonly type: 'integer' | 'string' };
}

/** The headers that failures have. */
const HEADERS: Readonly<Record<string, Header>> = {
  Allow: { description: 'The method of the path', schema: { type: 'string' } },
  'Retry-After': {
    description: 'After how many seconds to send the request again',
    schema: { type: 'integer' },
  },
  'WWW-Authenticate': {
    description: 'The Bearer scheme (RFC 6750)',
    schema: { type: 'string' },
  },
};

interface Response {
  readonly description: string;
  readonly headers?: Readonly<Record<string, Header>>;
  readonly content: ReturnType<typeof json>;
}

/**
 * The response of each status: Plant for 200, Error for every status that a failure has. Failures
 * that are functions are skipped: their status is 400, which failures that are constants have, too.
 */
const responses: Record<string, Response> = {
  200: { description: 'plant response', content: json('Plant') },
  ...Object.fromEntries(
    Object.values(failures)
      .filter((failure) => failure instanceof Failure)
      .map((failure) => [failure.status, errorResponse(failure)] as const),
  ),
};

function errorResponse({ status, headers }: Failure): Response {
  const shown = Object.entries(HEADERS).filter(([name]) => name in headers);
  return {
    // The service implements an interface that was given: these are its words for any error.
    description: status === 400 ? 'unexpected error' : String(STATUS_CODES[status]),
    ...(shown.length > 0 && { headers: Object.fromEntries(shown) }),
    content: json('Error'),
  };
}

/**
 * The interface of the service as an OpenAPI 3.1 document, with every response that it sends. The
 * package exports it as the file `plant-store/openapi.json`, too. It is an `OpenAPIV3_1.Document`
 * of the package `openapi-types`, which tools such as `@fastify/swagger` use.
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
      'always safe to retry. The status of a request whose content cannot be stored is 400, and ' +
      '`error` says why: 400 the body is not JSON, 409 the id belongs to a different plant, 413 ' +
      'the body is too large, 415 it is of another media type or encoded, 422 it is not a plant.',
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
