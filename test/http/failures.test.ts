import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';

import t from 'tap';
import ts from 'typescript';

import { failures, type Failure } from '../../dist/http/failures.js';
import { codeSpans, rows } from '../readme.js';

/** Every failure by its name, with a sample of those that depend on the request. */
const samples = new Map(
  Object.entries(failures).map(([name, failure]) => {
    const make = failure as Failure | ((about: unknown) => Failure);
    return [name, typeof make === 'function' ? make(['a fault']) : make];
  }),
);

const SENT = ['In the program and in applications', 'Only in the program', 'Only in applications'];

t.test('the tables of failures list every place that uses one, and nothing else', async (t) => {
  const sent = SENT.flatMap(rows);
  const listed = [...sent.map((row) => row.slice(2)), ...rows('Never sent')].map(
    ([failure = '', where = '']) => codeSpans(`${failure} ${where}`).join(' '),
  );
  t.strictSame([...new Set(listed)].toSorted(), [...new Set(uses())].toSorted());

  for (const [status, error, name = ''] of sent) {
    const failure = samples.get(codeSpans(name).join());
    t.strictSame([Number(status), Number(error)], [failure?.status, failure?.error], name);
  }
});

/** Each use of a failure in src/: its name, the function or constant, and the file. */
function uses(): string[] {
  const found: string[] = [];
  const names = readdirSync('src', { encoding: 'utf8', recursive: true });
  // The OpenAPI document describes the failures.
  for (const name of names.filter((each) => each.endsWith('.ts') && each !== 'http/openapi.ts')) {
    const content = readFileSync(join('src', name), 'utf8');
    if (!content.includes("/failures.js';")) continue;
    const file = ts.createSourceFile(name, content, ts.ScriptTarget.Latest, true);
    found.push(...usesIn(file, '').map((use) => `${use} ${basename(name)}`));
  }
  return found;
}

function usesIn(node: ts.Node, where: string): string[] {
  const found: string[] = [];
  const isUse = ts.isPropertyAccessExpression(node) && node.expression.getText() === 'failures';
  if (isUse && !isComparison(node.parent)) found.push(`${node.name.text} ${where}`);
  ts.forEachChild(node, (child) => void found.push(...usesIn(child, nameOf(node) ?? where)));
  return found;
}

/** The name of a function, or of a constant of the module. */
function nameOf(node: ts.Node): string | undefined {
  if (ts.isFunctionDeclaration(node)) return node.name?.text;
  const isGlobal = ts.isVariableDeclaration(node) && ts.isSourceFile(node.parent.parent.parent);
  return isGlobal ? node.name.getText() : undefined;
}

function isComparison(node: ts.Node): boolean {
  return (
    ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.EqualsEqualsEqualsToken
  );
}
