import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import t from 'tap';

import { encodeRecord } from '../../dist/log/record.js';
import { FERN, IVY } from '../helpers/plants.js';
import {
  asModule,
  DONE,
  FAILED,
  failsHere,
  HASTY,
  launchHere,
  MISUSED,
  run,
  runHere,
  SERVER,
} from '../helpers/program.js';
import { listen } from '../helpers/service.js';
import { lineOf } from '../log/support.js';

t.test('the version is that of the package', async (t) => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  const { code, stdout, stderr } = await runHere(t, { args: ['--version'] });
  t.strictSame({ code, stdout, stderr }, { code: 0, stdout: `${version}\n`, stderr: '' });
});

t.test('--help is printed even if a setting is wrong, in 100 columns', async (t) => {
  for (const arg of ['--help', '-h', 'help']) {
    const env = { PLANT_STORE_PORT: 'wrong' };
    const { code, stdout, stderr } = await runHere(t, { args: [arg], env });
    t.strictSame({ code, stderr }, { code: 0, stderr: '' });
    t.match(
      stdout,
      /^Usage: plant-store [^]*--help \| --version[^]*SIGTERM and SIGINT [^]*SIGHUP /,
    );
    t.strictSame(
      stdout.split('\n').filter((line) => line.length > 100),
      [],
      'no line is wider than 100 characters',
    );
  }
});

t.test('unknown arguments are refused, and not repeated: one may be a token', async (t) => {
  const problem =
    'there is no such command, or it takes other arguments; settings are environment variables; see --help';
  const commands = [
    ...['-x', '--port 8080', '--token=secret', '-h -v', 'help verify', 'verify --help'],
    ...['verify a b', 'repair a b', 'import', 'import a b', 'export a b'],
  ];
  for (const command of commands)
    await failsHere(t, MISUSED, [problem], { args: command.split(' ') });
});

t.test('a damaged log is refused unchanged, with the commands that help', async (t) => {
  const content = encodeRecord(FERN) + encodeRecord(IVY).replace('\n', ' \n');
  const cwd = t.testdir({ 'plants.jsonl': content });
  const path = join(cwd, 'plants.jsonl');
  const faults = [
    `${path}: line 2, at byte ${lineOf(FERN).length}: it holds a plant, but has other spaces, escapes or members than a record, or another order`,
    `the log was not changed: run "plant-store verify ${path}" to list its damaged lines, then "plant-store repair ${path}" to repair them`,
  ];
  await failsHere(t, FAILED, faults, { cwd });
  t.equal(readFileSync(path, 'utf8'), content);
});

t.test('a signal ends the program while its database does not answer', async (t) => {
  const server = createServer();
  const env = {
    PLANT_STORE_DATABASE_URL: `postgres://plants@127.0.0.1:${await listen(t, server)}/plants`,
    PLANT_STORE_DATABASE_PASSWORD_FILE: 'password',
    PLANT_STORE_TOKEN: 'a',
  };
  const program = launchHere(t, { cwd: t.testdir({ password: 'secret' }), env });
  await once(server, 'connection');
  program.send('SIGTERM');
  t.strictSame(await program.ended, DONE);
});

t.test('a program that fails ends even if nobody reads its output', async (t) => {
  const full = `for (const output of [process.stdout, process.stderr])
    output.write('x'.repeat(10_000_000));`;
  const imports = ['--import', asModule(full + HASTY)];
  const env = { ...process.env, PLANT_STORE_PORT: 'wrong' };
  const program = spawn(process.execPath, [...imports, SERVER], { env });
  t.teardown(() => program.kill('SIGKILL'));
  t.strictSame(await once(program, 'exit'), [null, 'SIGKILL']);
});

t.test('a process that no SIGKILL of its own ends, as process 1, aborts', async (t) => {
  const cwd = t.testdir();
  execFileSync('mkfifo', [join(cwd, 'pipe')]);
  // Opening a FIFO blocks until it has a writer. What was covered is written before the process ends.
  const source = `import fs from 'node:fs';
    import { takeCoverage } from 'node:v8';
    import { killProcess } from ${JSON.stringify(pathToFileURL('dist/program/exit.js'))};
    const { abort } = process;
    process.abort = () => {
      takeCoverage();
      abort();
    };
    process.kill = () => true;
    fs.open('pipe', 'r', () => undefined);
    killProcess();`;
  const command = [process.execPath, '--input-type=module', '--eval', source];
  const { code, signal } = await run(t, { command, cwd });
  t.strictSame({ code, signal }, { code: null, signal: 'SIGABRT' });
});
