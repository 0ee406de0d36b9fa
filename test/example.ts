import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

import type { Test } from 'tap';

// With `import`, Node would search its nine megabytes for the names of exports.
const ts = createRequire(import.meta.url)('typescript') as typeof import('typescript');

const COMPILED_TESTS = fileURLToPath(new URL('.', import.meta.url));

/** A module in a folder of its own. */
export interface Example {
  readonly folder: string;
  readonly path: string;
}

/** The JavaScript of code of a document. */
export function compiled(code: string): string {
  return ts.transpileModule(code, {
    compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023 },
  }).outputText;
}

/** Compiles code of a document to a module that lasts as long as the test, with these files beside it. */
export function writeExample(
  t: Test,
  code: string,
  files: Readonly<Record<string, string>> = {},
): Example {
  // Within the package, so that it can be imported by its name.
  const folder = mkdtempSync(join(COMPILED_TESTS, 'example-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  for (const [name, content] of Object.entries({ ...files, 'example.js': compiled(code) }))
    writeFileSync(join(folder, name), content);
  return { folder, path: join(folder, 'example.js') };
}

/** Runs code of a document as a module, in its folder. Resolves to its exports. */
export async function runExample(
  t: Test,
  code: string,
  files?: Readonly<Record<string, string>>,
): Promise<Record<string, unknown>> {
  const before = process.cwd();
  const { folder, path } = writeExample(t, code, files);
  process.chdir(folder);
  t.teardown(() => process.chdir(before));
  return (await import(pathToFileURL(path).href)) as Record<string, unknown>;
}
