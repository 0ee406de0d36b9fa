import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

import type { Test } from 'tap';
import ts from 'typescript';

const COMPILED_TESTS = fileURLToPath(new URL('.', import.meta.url));

/**
 * Runs code of the README as a module of its own, in a new folder with these files. Resolves to what
 * it exports.
 */
export async function runExample(
  t: Test,
  code: string,
  files: Readonly<Record<string, string>> = {},
): Promise<Record<string, unknown>> {
  const { outputText } = ts.transpileModule(code, {
    compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023 },
  });
  // Within the package, so that it can be imported by its name.
  const folder = mkdtempSync(join(COMPILED_TESTS, 'example-'));
  for (const [name, content] of Object.entries({ ...files, 'example.js': outputText }))
    writeFileSync(join(folder, name), content);

  const before = process.cwd();
  process.chdir(folder);
  t.teardown(() => {
    process.chdir(before);
    rmSync(folder, { recursive: true });
  });
  return (await import(pathToFileURL(join(folder, 'example.js')).href)) as Record<string, unknown>;
}
