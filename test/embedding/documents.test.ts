import { readdirSync, readFileSync } from 'node:fs';

import t from 'tap';

import { block, blocksIn, read } from '../readme.js';

const EXAMPLES = readdirSync('test/examples').map((name) =>
  readFileSync(`test/examples/${name}`, 'utf8'),
);

/** The documents with programs that other tests do not run. */
const DOCUMENTS = [
  'README.md',
  '.github/EMBEDDING.md',
  'src/log/README.md',
  'src/postgres/README.md',
] as const;

/** How blocks begin that the tests of the package or of the log run. */
const OTHERS = /^(?:server\.ext|\/\/ jest\.config\.cjs|const reviver)/;

t.test('each program of these documents is a part of one that is compiled and run', async (t) => {
  const beginning = block('Embedding', 'ts');
  for (const document of DOCUMENTS)
    for (const code of ['ts', 'js'].flatMap((tag) => blocksIn(read(document), tag))) {
      if (OTHERS.test(code)) continue;
      const quoted = EXAMPLES.find((example) => example.includes(code)) ?? '';
      t.match(quoted, code, document);
      // The document says that its examples begin with the lines of that file.
      if (/\bhandler\b/.test(code) && code !== beginning) t.match(quoted, " from './handler.js';");
    }
});
