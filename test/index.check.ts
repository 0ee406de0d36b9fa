import { readdirSync } from 'node:fs';
import { resolve } from 'node:path';

import t from 'tap';
import ts from 'typescript';

const ENTRIES = ['dist/index.d.ts', 'dist/postgres/index.d.ts', 'dist/store-contract.d.ts'];

const declarations = readdirSync('dist', { encoding: 'utf8', recursive: true })
  .filter((name) => name.endsWith('.d.ts'))
  .map((name) => resolve('dist', name));

// Other declarations, such as those of TypeBox, take seconds to read, and are not looked at.
const program = ts.createProgram(declarations, {
  module: ts.ModuleKind.NodeNext,
  noLib: true,
  noResolve: true,
  types: [],
});
const checker = program.getTypeChecker();

/** What a symbol stands for in the module that declares it. */
function declared(symbol: ts.Symbol): ts.Symbol {
  const isAlias = (symbol.flags & ts.SymbolFlags.Alias) !== 0;
  return isAlias ? checker.getAliasedSymbol(symbol) : symbol;
}

const exported = ENTRIES.flatMap((entry) => {
  const file = program.getSourceFile(entry);
  const module = file && checker.getSymbolAtLocation(file);
  return module ? checker.getExportsOfModule(module).map(declared) : [];
});

t.test('every export of the package is documented, every function with an example', async (t) => {
  const names = exported.map(({ name }) => name);
  for (const name of ['openPlantLog', 'openPostgresStore', 'storeContract'])
    t.ok(names.includes(name));
  for (const symbol of exported) {
    const tags = symbol.getJsDocTags(checker).map((tag) => tag.name);
    t.not(symbol.getDocumentationComment(checker).length, 0, `${symbol.name}: documentation`);
    if (symbol.flags & ts.SymbolFlags.Function)
      t.ok(tags.includes('example'), `${symbol.name}: an example`);
  }
});
