import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { encodeRecord } from '../dist/log/record.js';
import { TOKEN } from './support.js';
import { failsToRun, run } from './system/program.js';

const FAILED = 1;
const MISUSED = 2;

t.test('--version prints the version of the package', async (t) => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  const { code, stdout, stderr } = await run(t, { args: ['--version'] });
  t.strictSame({ code, stdout, stderr }, { code: 0, stdout: `${version}\n`, stderr: '' });
});

t.test('--help lists the commands, settings and signals, even if a setting is wrong', async (t) => {
  const { code, stdout, stderr } = await run(t, {
    args: ['--help'],
    env: { PLANT_STORE_PORT: 'wrong' },
  });
  t.equal(code, 0);
  t.equal(stderr, '');
  const words = ['Usage: plant-store', 'verify', 'repair', '--help', '--version'];
  const more = ['PLANT_STORE_PORT', 'SIGTERM', 'SIGINT', 'SIGHUP'];
  for (const word of [...words, ...more]) t.match(stdout, word);
  for (const line of stdout.split('\n')) t.ok(line.length <= 100, `${line.length} characters wide`);
});

t.test('unknown arguments are refused', async (t) => {
  for (const args of [['-h'], ['--help', '--version'], ['verify', 'a', 'b'], ['repair', 'a', 'b']])
    await failsToRun(t, MISUSED, ['unknown arguments; see --help'], { args });
});

t.test('all faults of the settings are reported at once, and nothing is created', async (t) => {
  const cwd = t.testdir({ token: 'one\n???\n' });
  const env = {
    PLANT_STORE_HOST: '',
    PLANT_STORE_PORT: '80x',
    PLANT_STORE_TOKEN_FILE: 'token',
    PLANT_STORE_TLS_CERT: 'cert',
  };
  const faults = [
    'PLANT_STORE_HOST: must not be empty; leave it out instead',
    'PLANT_STORE_PORT: must be an integer between 0 and 65535',
    'PLANT_STORE_TLS_CERT and PLANT_STORE_TLS_KEY: must be set together',
    `${cwd}/token: line 2 has characters that a bearer token cannot have (RFC 6750)`,
  ];
  await failsToRun(t, MISUSED, faults, { cwd, env });
  t.strictSame(readdirSync(cwd), ['token']);
});

t.test('settings of a database are refused with the name of its program', async (t) => {
  const cwd = t.testdir();
  const env = {
    PLANT_STORE_DATABASE_URL: 'postgres://plants:secret@db/plants',
    PLANT_STORE_DATABASE_PASSWORD_FILE: 'password',
  };
  const sentences = Object.keys(env).map(
    (name) => `${name}: is a setting of plant-store-postgres (dist/postgres/server.js)`,
  );
  await failsToRun(t, MISUSED, sentences, { cwd, env });
  t.strictSame(readdirSync(cwd), [], 'no log is created');
});

t.test('verify and repair look only at the setting for the log', async (t) => {
  const fault = 'PLANT_STORE_FILE: must not be empty; leave it out instead';
  const env = { PLANT_STORE_FILE: ' ', PLANT_STORE_PORT: 'wrong' };
  for (const command of ['verify', 'repair'])
    await failsToRun(t, MISUSED, [fault], { args: [command], cwd: t.testdir(), env });
});

t.test('without a setting, verify and repair take the log in the folder data', async (t) => {
  const cwd = t.testdir({ data: { 'plants.jsonl': 'x\n' } });
  const env = { PLANT_STORE_PORT: 'wrong' };
  const verified = await run(t, { args: ['verify'], cwd, env });
  t.match(verified, { code: FAILED, stdout: /1 damaged line$/m });
  const repaired = await run(t, { args: ['repair'], cwd, env });
  t.match(repaired, { code: 0, stdout: /kept 0 plants, moved 1 damaged line to / });
  t.equal(readFileSync(join(cwd, 'data/plants.jsonl'), 'utf8'), '');
});

t.test('a damaged log is refused unchanged, with the commands that help', async (t) => {
  const fern = encodeRecord({ id: 7n, name: 'fern' });
  const content = `${fern}{"id":8,"name":"a fern"} \n`;
  const cwd = t.testdir({ 'plants.jsonl': content });
  const damage = 'it is not a valid record, or its checksum does not match';
  const sentences = [
    `${cwd}/plants.jsonl: line 2, at byte ${fern.length}: ${damage}`,
    'the log was not changed; plant-store verify lists its damaged lines, plant-store repair moves them aside',
  ];
  const env = { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: 'plants.jsonl' };
  await failsToRun(t, FAILED, sentences, { cwd, env });
  t.equal(readFileSync(join(cwd, 'plants.jsonl'), 'utf8'), content);
  t.strictSame(readdirSync(cwd), ['plants.jsonl']);
});
