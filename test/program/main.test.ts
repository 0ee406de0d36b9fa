import { cpSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';

import t from 'tap';

import { encodeRecord } from '../../dist/log/record.js';
import { TOKEN } from '../client.js';
import { failsToRun, run, SERVER } from '../system/program.js';

const FAILED = 1;
const MISUSED = 2;

t.test('--version prints the version of the package', async (t) => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  const { code, stdout, stderr } = await run(t, { args: ['--version'] });
  t.strictSame({ code, stdout, stderr }, { code: 0, stdout: `${version}\n`, stderr: '' });
});

t.test('the version is known without package.json, as in a bundle', async (t) => {
  const cwd = t.testdir({ 'package.json': '{ "type": "module" }', node_modules: {} });
  cpSync('dist', join(cwd, 'dist'), { recursive: true });
  symlinkSync(resolve('node_modules/typebox'), join(cwd, 'node_modules/typebox'));
  const script = join(cwd, 'dist/server.js');
  const [bundled, packaged] = [
    await run(t, { script, args: ['--version'] }),
    await run(t, { args: ['--version'] }),
  ];
  t.equal(bundled.stdout, packaged.stdout);
});

t.test('unknown arguments are refused', async (t) => {
  for (const args of [
    ['-x'],
    ['help', 'verify'],
    ['--help', '--version'],
    ['verify', '--help'],
    ['verify', 'a', 'b'],
    ['repair', 'a', 'b'],
  ])
    await failsToRun(t, MISUSED, ['unknown arguments; see --help'], { args });
});

t.test('a damaged log is refused unchanged, with the commands that help', async (t) => {
  const fern = encodeRecord({ id: 7n, name: 'fern' });
  const content = `${fern}{"id":8,"name":"a fern"} \n`;
  const cwd = t.testdir({ 'plants.jsonl': content });
  const damage = 'it is not a valid record, or its checksum does not match';
  const sentences = [
    `${cwd}/plants.jsonl: line 2, at byte ${fern.length}: ${damage}`,
    adviceFor(`node ${relative(cwd, SERVER)}`),
  ];
  const env = { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: 'plants.jsonl' };
  await failsToRun(t, FAILED, sentences, { cwd, env });
  t.equal(readFileSync(join(cwd, 'plants.jsonl'), 'utf8'), content);
  t.strictSame(readdirSync(cwd), ['plants.jsonl']);

  // As npm links a program.
  symlinkSync(SERVER, join(cwd, 'plant-store'));
  const command = [process.execPath, join(cwd, 'plant-store')];
  const linked = [sentences[0] ?? '', adviceFor('plant-store')];
  await failsToRun(t, FAILED, linked, { cwd, env, command });
});

const adviceFor = (command: string): string =>
  `the log was not changed; ${command} verify lists its damaged lines, ${command} repair moves them aside`;
