/* The rules of ESLint keep the rooms of src/ apart, as CONTRIBUTING.md draws them. */
import { ESLint, Linter } from 'eslint';
import t from 'tap';

const eslint = new ESLint();

/** The names of the rules about modules and globals that a line in a file breaks. */
async function rulesBroken(file: string, line: string): Promise<readonly (string | null)[]> {
  const { rules } = (await eslint.calculateConfigForFile(file)) as {
    readonly rules: Linter.RulesRecord;
  };
  const named = Object.entries(rules).filter(([name]) => name.startsWith('no-restricted-'));
  const messages = new Linter().verify(line, { rules: Object.fromEntries(named) });
  return messages.map(({ ruleId }) => ruleId);
}

const ROOMS = ['http', 'log', 'postgres', 'program'];

/** For each file, the rooms whose modules it may import. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  'src/plant.ts': [],
  'src/index.ts': ['http', 'log'],
  'src/server.ts': ROOMS,
  'src/http/handler.ts': ['http'],
  'src/log/log.ts': ['log'],
  'src/postgres/store.ts': ['postgres'],
  'src/program/commands/serve.ts': ['http', 'log', 'program'],
};

t.test('a file of src/ imports only from its own room, or from rooms below it', async (t) => {
  for (const [file, rooms] of Object.entries(MAY_IMPORT)) {
    const up = '../'.repeat(file.split('/').length - 2) || './';
    for (const room of ROOMS) {
      const broken = await rulesBroken(file, `import '${up}${room}/some.js';`);
      const expected = rooms.includes(room) ? [] : ['no-restricted-imports'];
      t.strictSame(broken, expected, `${file}: ${room}`);
    }
    t.strictSame(await rulesBroken(file, `import '${up}store.js';`), [], file);
  }
  const program = 'src/program/settings/table.ts';
  t.strictSame(await rulesBroken(program, `import '../../postgres/url.js';`), []);
});

t.test('only the program uses process, and no file uses the wall clock', async (t) => {
  for (const file of Object.keys(MAY_IMPORT)) {
    const isProgram = /^src\/(?:program\/|server\.ts)/.test(file);
    t.equal((await rulesBroken(file, 'process.exit();')).length, isProgram ? 0 : 1, file);
    const imported = await rulesBroken(file, `import 'node:process';`);
    t.equal(imported.length, isProgram ? 0 : 1, file);
    t.strictSame(await rulesBroken(file, 'Date.now();'), ['no-restricted-globals'], file);
  }
});
