import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

import { Validator } from '@seriousme/openapi-schema-validator';
import t from 'tap';

import { Failure, failures } from '../../dist/http/failures.js';
import { ErrorSchema, NewPlantSchema, openapi, PlantSchema } from '../../dist/index.js';
import { typeFaults } from '../compile.js';
import { conforms } from '../conformance.js';
import { exactly } from '../exactly.js';
import { runExample } from '../example.js';
import { block } from '../readme.js';
import { serve } from '../service.js';

const require = createRequire(import.meta.url);
const PACKAGE = fileURLToPath(new URL('../..', import.meta.url));

t.test('the document is valid OpenAPI 3.1', async (t) => {
  const validator = new Validator();
  t.strictSame(await validator.validate(structuredClone(openapi)), { valid: true });
  t.equal(validator.version, '3.1');
});

t.test('the document matches the interface', async (t) => {
  const { info, servers, security, components, paths } = openapi;
  t.match(info, { version: '1.0.0', license: { name: 'MIT' } });
  t.strictSame(servers, [{ url: 'http://127.0.0.1:8080' }], 'a URL without variables');
  t.strictSame(
    Object.entries(paths).map(([path, item]) => [path, Object.keys(item)]),
    [['/plants', ['post']]],
  );
  const { post } = paths['/plants'];
  const withCode = { type: 'object', properties: { error: { type: 'integer' } } };
  t.match(post, {
    operationId: 'createPlant',
    description: 'Creates a new plant in the store.',
    requestBody: { required: true, content: json(reference('NewPlant')) },
    responses: {
      200: { description: 'plant response', content: json(reference('Plant')) },
      400: {
        description: 'unexpected error',
        content: json({ allOf: exactly(reference('Error'), withCode) }),
      },
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
});

function json(schema: object): object {
  return { 'application/json': { schema } };
}

function reference(schema: string): object {
  return { $ref: `#/components/schemas/${schema}` };
}

t.test('the document has a summary, descriptions and tags for generators', async (t) => {
  const { info, tags, paths } = openapi;
  const { post } = paths['/plants'];
  t.match(info, { description: /\w/, contact: { name: /\w/ } });
  t.match(post.summary, /\w/);
  t.match(tags, exactly({ name: 'plants', description: /\w/ }));
  t.strictSame(post.tags, ['plants']);
});

t.test('the document contains the schemas that plants are checked with', async (t) => {
  const { Plant, NewPlant, Error } = openapi.components.schemas;
  t.strictSame([Plant, NewPlant, Error], [PlantSchema, NewPlantSchema, ErrorSchema]);
  t.equal(NewPlant, NewPlantSchema);
});

t.test('the package contains the document as a file', async (t) => {
  const file = readFileSync(require.resolve('plant-store/openapi.json'), 'utf8');
  t.strictSame(JSON.parse(file), openapi);
});

t.test('the document describes every failure with an example', async (t) => {
  const { responses } = openapi.paths['/plants'].post;
  for (const [name, each] of Object.entries(failures)) {
    const { status, error, headers, body } = each instanceof Failure ? each : each(['x'] as never);
    const sent = new Headers({ ...headers, 'Content-Type': 'application/json' });
    conforms({ status, headers: Object.fromEntries(sent), body });
    const { examples } = responses[status]?.content['application/json'] ?? {};
    t.match(examples?.[name]?.value, { error, message: /\w/ }, name);
  }
});

t.test('an answer with the error code of another status does not conform', async (t) => {
  const headers = { 'content-type': 'application/json', 'www-authenticate': 'Bearer' };
  const body = (error: unknown): string => JSON.stringify({ error, message: 'No.' });
  for (const error of [400, 409, 413, 415, 422]) {
    conforms({ status: 400, headers, body: body(error) });
    t.throws(() => conforms({ status: 401, headers, body: body(error) }), /status 401/);
  }
  conforms({ status: 401, headers, body: body(401) });
  for (const error of [401, 404, 423, '400', undefined])
    t.throws(() => conforms({ status: 400, headers, body: body(error) }), /status 400/);
  t.throws(() => conforms({ status: 400, headers, body: '{"error":400}' }), /status 400/);
});

t.test('the document lists the headers of each answer', async (t) => {
  const required = Object.entries(openapi.paths['/plants'].post.responses).flatMap(
    ([status, { headers = {} }]) =>
      Object.entries(headers).flatMap(([name, header]) =>
        (header as { required: boolean }).required ? [`${status} ${name}`] : [],
      ),
  );
  t.strictSame(required, ['401 WWW-Authenticate', '405 Allow', '503 Retry-After']);
});

/** The type of `error` in the body of each answer but a 200. */
const CODES = `{
  400: 400 | 409 | 413 | 415 | 422;
  401: 401;
  404: 404;
  405: 405;
  408: 408;
  413: 413;
  417: 417;
  431: 431;
  500: 500;
  501: 501;
  503: 503;
}`;

/** A client that sends any id exactly. */
const EXACT_CLIENT = `${block('OpenAPI', 'ts')}\n${block('Ids beyond 2^53', 'ts')}`;

t.test('a typed client is generated from the document as the README says', async (t) => {
  const folder = t.testdir({
    node_modules: { 'plant-store': t.fixture('symlink', PACKAGE) },
    'client.ts': block('OpenAPI', 'ts'),
    'exact.ts': EXACT_CLIENT,
    'mistake.ts': block('OpenAPI', 'ts').replace('id: 7', "id: 'seven'"),
    'codes.ts': `
      import type { paths } from './plant-store.js';

      type Equal<A, B> =
        (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
      type Responses = paths['/plants']['post']['responses'];
      type Codes = {
        [Status in Exclude<keyof Responses, 200>]:
          Responses[Status]['content']['application/json']['error'];
      };
      export const equal: Equal<Codes, ${CODES}> = true;
    `,
  });
  const command = block('OpenAPI', 'sh').trim().split(' ');
  t.strictSame(command.splice(0, 2), ['npx', 'openapi-typescript']);
  const bin = new URL(
    '../../test/consumers/typescript-5.9/node_modules/openapi-typescript/bin/cli.js',
    import.meta.url,
  );
  execFileSync(process.execPath, [fileURLToPath(bin), ...command], { cwd: folder });

  const programs = ['client.ts', 'codes.ts', 'exact.ts', 'mistake.ts'];
  const compilation = { release: '5.9', folder, programs, skipLibCheck: true } as const;
  t.match(
    await typeFaults({ resolution: 'bundler', ...compilation }),
    /^.*\nmistake\.ts\(\d+,\d+\): error TS2322: Type 'string' is not assignable to type 'number'\.\s*$/,
  );

  await t.test('the typed client creates plants', async (t) => {
    const { port, log } = await serve(t, { tokens: ['a-secret-token'] });
    const lines = block('OpenAPI', 'ts').replace('8080', String(port));
    const { data, error } = await runExample(t, `${lines}\nexport { data, error };`);
    t.strictSame(data, { name: 'Boston fern', tag: 'indoor' });
    t.equal(error, undefined);
    t.equal(log.size, 1);
  });

  await t.test(
    'the typed client with the serializer of the README sends any id exactly',
    async (t) => {
      const { port, log } = await serve(t, { tokens: ['a-secret-token'] });
      const lines = EXACT_CLIENT.replaceAll('8080', String(port));
      const { stored } = await runExample(t, `${lines}\nexport { stored };`);
      t.match(stored, { data: { name: 'Boston fern' } });
      const ids = [];
      for await (const { id } of log.plants()) ids.push(id);
      t.strictSame(ids, [7n, 2n ** 63n - 1n]);
    },
  );

  await t.test('the typed client gets the error of a refused plant', async (t) => {
    const { port } = await serve(t);
    const lines = block('OpenAPI', 'ts').replace('8080', String(port));
    const { data, error } = await runExample(t, `${lines}\nexport { data, error };`);
    t.equal(data, undefined);
    t.strictSame(error, { error: 401, message: 'the bearer token is not valid' });
  });
});
