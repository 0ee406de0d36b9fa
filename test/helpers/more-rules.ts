import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import type { Test } from 'tap';

/** Rules for new plants that a later version may add to the schema, as text in the build. */
const RULES: readonly (readonly [before: string, after: string])[] = [
  ["required: ['name'],", "required: ['name', 'tag'],"],
  ["name: { type: 'string',", "name: { type: 'string', maxLength: 100,"],
];

/**
 * Copies the build, and adds rules for new plants to the schema of the copy. Returns the folder of
 * the copy.
 */
export function buildWithMoreRules(t: Test): string {
  const dist = join(t.testdir(), 'dist');
  cpSync('dist', dist, { recursive: true });
  const path = join(dist, 'plant.js');
  let source = readFileSync(path, 'utf8');
  for (const [before, after] of RULES) {
    t.ok(source.includes(before), `the schema has ${before}`);
    source = source.replace(before, after);
  }
  writeFileSync(path, source);
  return dist;
}
