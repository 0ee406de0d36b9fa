import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { failsToRun, run } from './system/program.js';

const FAILED = 1;
const MISUSED = 2;

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

t.test('-h and help are --help', async (t) => {
  const { stdout } = await run(t, { args: ['--help'] });
  for (const arg of ['-h', 'help'])
    t.strictSame((({ code, stdout }) => ({ code, stdout }))(await run(t, { args: [arg] })), {
      code: 0,
      stdout,
    });
});

t.test('a configured log that cannot be read is named with its setting', async (t) => {
  const cwd = t.testdir();
  const env = { PLANT_STORE_FILE: 'none' };
  const reason = `${cwd}/none: no such file or directory (ENOENT)`;
  for (const command of ['verify', 'repair']) {
    await failsToRun(t, FAILED, [`PLANT_STORE_FILE: ${reason}`], { args: [command], cwd, env });
    await failsToRun(t, FAILED, [reason], { args: [command, 'none'], cwd });
  }
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
    `PLANT_STORE_TOKEN_FILE: ${cwd}/token: line 2 has characters that a bearer token cannot have (RFC 6750)`,
    `PLANT_STORE_TLS_CERT: ${cwd}/cert: no such file or directory (ENOENT)`,
    'PLANT_STORE_TLS_CERT and PLANT_STORE_TLS_KEY: must be set together',
  ];
  await failsToRun(t, MISUSED, faults, { cwd, env });
  t.strictSame(readdirSync(cwd), ['token']);
});

t.test('verify and repair look only at the setting for the log', async (t) => {
  const fault = 'PLANT_STORE_FILE: must not be empty; leave it out instead';
  const env = { PLANT_STORE_FILE: ' ', PLANT_STORE_PORT: 'wrong' };
  for (const command of ['verify', 'repair'])
    await failsToRun(t, MISUSED, [fault], { args: [command], cwd: t.testdir(), env });
});

t.test('without a setting, verify and repair take the log in the folder data', async (t) => {
  const cwd = t.testdir({ data: { 'plants.jsonl': '{"id":\n' } });
  const env = { PLANT_STORE_PORT: 'wrong' };
  const verified = await run(t, { args: ['verify'], cwd, env });
  t.match(verified, { code: FAILED, stdout: /1 damaged line$/m });
  const repaired = await run(t, { args: ['repair'], cwd, env });
  t.match(repaired, { code: 0, stdout: /kept 0 plants, moved 1 damaged line to / });
  t.equal(readFileSync(join(cwd, 'data/plants.jsonl'), 'utf8'), '');
});
