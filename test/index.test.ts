import t from 'tap';
import ts from 'typescript';

const ENTRIES = ['dist/index.d.ts', 'dist/postgres/index.d.ts'];

t.test('every export of the package is documented, with an example', async (t) => {
  // Neither the standard library nor @types is needed to read the comments.
  const options = { module: ts.ModuleKind.NodeNext, noLib: true, types: [] };
  const program = ts.createProgram(ENTRIES, options);
  const checker = program.getTypeChecker();
  const names = ENTRIES.flatMap((entry) => {
    const file = program.getSourceFile(entry);
    const module = file && checker.getSymbolAtLocation(file);
    return module ? checker.getExportsOfModule(module) : [];
  });
  t.ok(names.some(({ name }) => name === 'openPlantLog'));
  t.ok(names.some(({ name }) => name === 'openPostgresStore'));
  for (const name of names) {
    const isAlias = (name.flags & ts.SymbolFlags.Alias) !== 0;
    const symbol = isAlias ? checker.getAliasedSymbol(name) : name;
    const tags = symbol.getJsDocTags(checker).map((tag) => tag.name);
    t.not(symbol.getDocumentationComment(checker).length, 0, `${name.name}: documentation`);
    t.ok(tags.includes('example'), `${name.name}: an example`);
  }
});
