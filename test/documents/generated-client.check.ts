/* Generates the types of a client from the OpenAPI document as documented, and runs the client. */
import { execFileSync } from 'node:child_process';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

import t, { type Test } from 'tap';

import { typeFaults } from '../helpers/compile.js';
import { block, EXAMPLES } from '../helpers/documents.js';
import { listen, serve } from '../helpers/service.js';

// With `import`, Node would search nine megabytes for the names of exports.
const typescript = createRequire(import.meta.url)('typescript') as typeof import('typescript');

const PACKAGE = fileURLToPath(new URL('../..', import.meta.url));

/** A client that sends any id exactly. */
const EXACT_CLIENT = `${block('Generated clients', 'ts')}\n${block('Ids beyond 2^53', 'ts')}`;

const { 'retry.ts': RETRY = '' } = EXAMPLES;

/**
 * Runs a client, without its types and its pauses, against a service on a port. Resolves to the
 * exports of the client.
 */
async function runClient(t: Test, port: number, code: string): Promise<Record<string, unknown>> {
  const { ModuleKind, ScriptTarget, transpile } = typescript;
  const options = { module: ModuleKind.ESNext, target: ScriptTarget.ES2023 };
  const client = transpile(code.replaceAll('8080', String(port)), options);
  // Every timer but the limit of an attempt is a pause.
  const setTimeout = `const setTimeout = (onExpiry: () => void, ms: number) =>
    globalThis.setTimeout(onExpiry, ms === 15_000 ? ms : 0);`;
  const retry = transpile(`${setTimeout}${RETRY}`, options);
  const path = join(t.testdir({ 'client.mjs': client, 'retry.js': retry }), 'client.mjs');
  // The port, so that Node does not return the module of an earlier client.
  return (await import(`${pathToFileURL(path).href}?${port}`)) as Record<string, unknown>;
}

t.test('the types of a client are generated with the documented command', async (t) => {
  const programs = {
    'client.ts': block('Generated clients', 'ts'),
    'retry.ts': RETRY,
    'exact.ts': EXACT_CLIENT,
    'mistake.ts': block('Generated clients', 'ts').replace('id: 7', "id: 'seven'"),
  };
  const node_modules = { 'plant-store': t.fixture('symlink', PACKAGE) };
  const folder = t.testdir({ node_modules, ...programs });
  const command = block('Generated clients', 'sh').trim().split(' ');
  t.strictSame(command.splice(0, 2), ['npx', 'openapi-typescript']);
  const bin = new URL(
    '../../test/package/consumers/typescript-5.9/node_modules/openapi-typescript/bin/cli.js',
    import.meta.url,
  );
  execFileSync(process.execPath, [fileURLToPath(bin), ...command], { cwd: folder });

  const compilation = { release: '5.9', resolution: 'bundler', programs } as const;
  t.match(
    await typeFaults(folder, compilation),
    /^mistake\.ts\S+ error TS2322: (?:(?!error)[^])* Type 'string' is not assignable to type 'number'/,
  );
});

t.test('a typed client with the documented serializer creates plants with any id', async (t) => {
  const { port, log } = await serve(t);
  const code = `${EXACT_CLIENT}\nexport { data, error, stored };`;
  const { data, error, stored } = await runClient(t, port, code);
  t.strictSame(data, { name: 'Boston fern', tag: 'indoor' });
  t.equal(error, undefined);
  t.match(stored, { data: { name: 'Boston fern' } });
  const ids = [];
  for await (const { id } of log.plants()) ids.push(id);
  t.strictSame(ids, [7n, 2n ** 63n - 1n]);
});

t.test('a typed client takes no answer of a proxy for a stored plant', async (t) => {
  for (const [status, body] of [
    [502, ''],
    [302, ''],
    [413, '<html><h1>413</h1></html>'],
  ] as const) {
    const port = await listen(
      t,
      createServer((_, res) => res.writeHead(status, { Location: '/' }).end(body)),
    );
    const code = block('Generated clients', 'ts');
    await t.rejects(runClient(t, port, code), { message: `refused: ${status}` });
  }
});
