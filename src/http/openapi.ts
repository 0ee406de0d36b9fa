import { STATUS_CODES } from 'node:http';

import { ErrorSchema, failures, type ErrorBody, type Failure } from './failures.js';
import { DEFAULT_LIMITS } from './memory.js';
import { PlantFault } from '../plant-json.js';
import { NewPlantSchema, PlantSchema } from '../plant.js';

/** Every failure by its name, with a sample of those that depend on the request. */
const samples: readonly (readonly [name: string, Failure])[] = Object.entries({
  ...failures,
  notJson: failures.notPlant(new PlantFault('json', 'must be one JSON text in UTF-8')),
  notPlant: failures.notPlant(new PlantFault('plant', 'name: must be a string', true)),
  tooLarge: failures.tooLarge(DEFAULT_LIMITS.maxBodyBytes),
});

interface Response {
  readonly description: string;
  readonly headers?: Readonly<Record<string, Header>>;
  readonly content: { readonly 'application/json': MediaType };
}

interface Header {
  readonly required: boolean;
  readonly schema: { readonly type: 'string'; readonly examples: string[] };
}

interface MediaType {
  readonly schema: Reference | { readonly allOf: (Reference | CodeSchema)[] };
  readonly examples?: Readonly<Record<string, { readonly value: ErrorBody }>>;
}

interface Reference {
  readonly $ref: string;
}

interface CodeSchema {
  readonly type: 'object';
  readonly properties: { readonly error: { readonly type: 'integer'; readonly enum: number[] } };
}

function allResponses(): Readonly<Record<string, Response>> {
  const statuses = new Set(samples.map(([, { status }]) => status));
  return {
    200: { description: 'plant response', content: json({ schema: refer('Plant') }) },
    ...Object.fromEntries([...statuses].map((status) => [status, failureResponse(status)])),
  };
}

function failureResponse(status: number): Response {
  const entries = samples.filter(([, failure]) => failure.status === status);
  const kinds = entries.map(([, failure]) => failure);
  const examples = Object.fromEntries(
    entries.map(([name, { body }]) => [name, { value: JSON.parse(body) as ErrorBody }]),
  );
  return {
    description: status === 400 ? 'unexpected error' : String(STATUS_CODES[status]),
    ...headersOf(kinds),
    content: json({ schema: errorSchema(kinds), examples }),
  };
}

/**
 * An Error whose code is one of these failures' codes. Tools differ in how they read keywords beside
 * a `$ref` and schemas without a `type`; they agree on this form.
 */
function errorSchema(kinds: readonly Failure[]): MediaType['schema'] {
  const codes = [...new Set(kinds.map((failure) => failure.error))];
  const properties = { error: { type: 'integer', enum: codes } } as const;
  return { allOf: [refer('Error'), { type: 'object', properties }] };
}

/** The headers of some failures. A header that all of them have is required. */
function headersOf(kinds: readonly Failure[]): Pick<Response, 'headers'> {
  const names = new Set(kinds.flatMap(({ headers }) => Object.keys(headers)));
  if (names.size === 0) return {};
  const headers = Object.fromEntries(
    [...names].map((name) => {
      const values = kinds.flatMap(({ headers }) => headers[name] ?? []);
      const schema: Header['schema'] = { type: 'string', examples: [...new Set(values)] };
      return [name, { required: values.length === kinds.length, schema }];
    }),
  );
  return { headers };
}

const schemas = { Plant: PlantSchema, NewPlant: NewPlantSchema, Error: ErrorSchema };

function refer(name: keyof typeof schemas): Reference {
  return { $ref: `#/components/schemas/${name}` };
}

function json<Content extends object>(content: Content): { 'application/json': Content } {
  return { 'application/json': content };
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
        requestBody: { required: true, content: json({ schema: refer('NewPlant') }) },
        responses: allResponses(),
      },
    },
  },
  components: {
    schemas,
    securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } as const },
  },
};
