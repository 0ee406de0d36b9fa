import { Validator } from '@seriousme/openapi-schema-validator';
import t from 'tap';

import { ErrorSchema, NewPlantSchema, openapi, PlantSchema } from '../../dist/index.js';
import { Failure, failures } from '../../dist/http/failures.js';
import { rows } from '../helpers/documents.js';
import { exactly } from '../helpers/exactly.js';

t.test('the OpenAPI document is valid OpenAPI 3.1', async (t) => {
  const validator = new Validator();
  t.strictSame(await validator.validate(structuredClone(openapi)), { valid: true });
  t.equal(validator.version, '3.1');
});

const json = (schema: string) => ({
  'application/json': { schema: { $ref: `#/components/schemas/${schema}` } },
});

t.test('the OpenAPI document describes the headers and the codes of failures', async (t) => {
  const described = Object.entries(openapi.paths['/plants'].post.responses)
    .filter(([, { headers }]) => headers)
    .map(([status, { headers }]) => [status, Object.keys(headers ?? {})] as const);
  t.strictSame(described, [
    ['401', ['WWW-Authenticate']],
    ['405', ['Allow']],
    ['503', ['Retry-After']],
  ]);
  const headers = Object.values(failures).flatMap((failure) =>
    failure instanceof Failure ? Object.keys(failure.headers) : [],
  );
  t.strictSame(new Set(headers), new Set(described.flatMap(([, names]) => names)));
  const codes = rows('Answers').flatMap(([, status, error]) => (status === '400' ? error : []));
  for (const code of codes) t.match(openapi.info.description, ` ${code} `);
});

t.test('the OpenAPI document describes the agreed interface', async (t) => {
  const { info, servers, tags, security, components, paths } = openapi;
  t.match(info, { version: '1.0.0', license: { name: 'MIT' } });
  t.match(info, { description: /\w/, contact: { name: /\w/ } }, 'for generators');
  t.match(tags, exactly({ name: 'plants', description: /\w/ }));
  t.strictSame(servers, [{ url: 'http://127.0.0.1:8080' }], 'a URL without variables');
  t.strictSame(
    Object.entries(paths).map(([path, item]) => [path, Object.keys(item)]),
    [['/plants', ['post']]],
  );
  const { post } = paths['/plants'];
  t.match(post, {
    operationId: 'createPlant',
    summary: /\w/,
    description: 'Creates a new plant in the store.',
    tags: exactly('plants'),
    requestBody: { required: true, content: json('NewPlant') },
    responses: {
      200: { description: 'plant response', content: json('Plant') },
      400: { description: 'unexpected error', content: json('Error') },
    },
  });
  t.strictSame(
    security.map((requirement) => Object.keys(requirement)),
    [['bearer']],
    'the whole interface requires bearer authentication',
  );
  t.strictSame(components.securitySchemes, { bearer: { type: 'http', scheme: 'bearer' } });

  const name = { type: 'string', description: 'The name of the plant' };
  const tag = { type: 'string', description: 'Tag that specifies the type of the plant' };
  const id = {
    type: 'integer',
    format: 'int64',
    description:
      'Identification number of the plant. Clients that hold it in a double, such as a number of ' +
      'JavaScript, round it beyond 2^53: they need an exact type and serializer.',
  };
  const error = { type: 'integer', format: 'int32', description: 'Numeric error indicator' };
  const text = { type: 'string', description: 'Text message describing the error' };
  t.strictSame(components.schemas, {
    Plant: { type: 'object', properties: { name, tag }, required: ['name'] },
    NewPlant: { type: 'object', properties: { id, name, tag }, required: ['id', 'name'] },
    Error: { type: 'object', properties: { error, message: text }, required: ['error', 'message'] },
  });
  const schemas = { Plant: PlantSchema, NewPlant: NewPlantSchema, Error: ErrorSchema };
  t.strictSame(components.schemas, schemas, 'the schemas with which plants are checked');
});
