import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import t from 'tap';

import { encodeRecord } from '../../dist/log/encode.js';
import { PROGRAM } from '../../dist/program/output.js';
import { FERN, IVY } from '../helpers/plants.js';
import {
  asModule,
  DONE,
  ENV,
  FAILED,
  expectFailedRunHere,
  HASTY,
  launchHere,
  MISUSED,
  run,
  runHere,
  SERVER,
} from '../helpers/program.js';
import { listen } from '../helpers/service.js';
import { lineOf } from '../log/support.js';

t.test('--version prints the version of the package', async (t) => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  const { code, stdout, stderr } = await runHere(t, { args: ['--version'] });
  t.strictSame({ code, stdout, stderr }, { code: 0, stdout: `${version}\n`, stderr: '' });
});

t.test('--help is printed even if a setting is wrong, in 100 columns', async (t) => {
  for (const command of ['--help', '-h', 'help', 'help verify', 'import --help', 'export a -h']) {
    const env = { PLANT_STORE_PORT: 'wrong' };
    const { code, stdout, stderr } = await runHere(t, { args: command.split(' '), env });
    t.strictSame({ code, stderr }, { code: 0, stderr: '' });
    t.match(
      stdout,
      /^Usage: plant-store [^]*--help \| --version[^]*SIGTERM and SIGINT [^]*SIGHUP /,
    );
    t.strictSame(
      // Lines with the path of the program are left out: their length depends on the folder.
      stdout.split('\n').filter((line) => line.length > 100 && !line.includes(PROGRAM)),
      [],
      'no line is wider than 100 characters',
    );
  }
});

const NO_OPTION = 'no such option; settings are environment variables; the nearest ones are';
const SEE = 'see --help';

for (const [args, problem] of Object.entries({
  '--port 8080': `--port: no such option; set the environment variable PLANT_STORE_PORT; ${SEE}`,
  '--max-body=5': `--max-body: no such option; set the environment variable PLANT_STORE_MAX_BODY; ${SEE}`,
  'PLANT_STORE_TOKEN=secret': `PLANT_STORE_TOKEN: no such option; set the environment variable PLANT_STORE_TOKEN; ${SEE}`,
  '--token=secret': `--token: no such option; set the environment variable PLANT_STORE_TOKEN; ${SEE}`,
  'import secret --token secret': `--token: no such option; set the environment variable PLANT_STORE_TOKEN; ${SEE}`,
  '-psecret': `-p: ${NO_OPTION} PLANT_STORE_PORT, PLANT_STORE_HOST, PLANT_STORE_FILE; ${SEE}`,
  'export --tls': `--tls: ${NO_OPTION} PLANT_STORE_TLS_CERT, PLANT_STORE_TLS_KEY, PLANT_STORE_DATABASE_CONNECTIONS; ${SEE}`,
  'serve secret': `serve: no such command; ${SEE}`,
  'verify a secret': `verify: takes one file; ${SEE}`,
  'repair a secret': `repair: takes one file; ${SEE}`,
  'export a secret': `export: takes one file; ${SEE}`,
  'import a secret': `import: takes one file; ${SEE}`,
  import: `import: needs a file; ${SEE}`,
}))
  t.test(`${args}: refused, and no value is repeated: it may be a token`, async (t) => {
    await expectFailedRunHere(t, MISUSED, [problem], { args: args.split(' ') });
  });

t.test('a damaged log is refused unchanged, with the commands that help', async (t) => {
  const content = encodeRecord(FERN) + encodeRecord(IVY).replace('\n', ' \n');
  const cwd = t.testdir({ 'plants.jsonl': content });
  const path = join(cwd, 'plants.jsonl');
  const { code, stderr } = await run(t, { cwd, env: ENV });
  const program = `${process.execPath} ${SERVER}`;
  t.strictSame(
    { code, stderr },
    {
      code: FAILED,
      stderr: [
        `plant-store: ${path}: line 2, at byte ${lineOf(FERN).length}: it holds a plant, but has other spaces, escapes or members than a record, or another order`,
        `plant-store: the log was not changed: run "${program} verify ${path}" to list its damaged lines, then "${program} repair ${path}" to repair them`,
        '',
      ].join('\n'),
    },
  );
  t.equal(readFileSync(path, 'utf8'), content);
  const [verify = '', repair = ''] = Array.from(stderr.matchAll(/"(.+?)"/g), ([, each]) => each);
  for (const [command, code, output] of [
    [verify, FAILED, /^line 2, byte /],
    [repair, 0, /wrote 1 line again/],
  ] as const) {
    const ended = await run(t, { command: command.split(' ') });
    t.strictSame({ code: ended.code, stderr: ended.stderr }, { code, stderr: '' }, command);
    t.match(ended.stdout, output);
  }
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

t.test('a process that cannot kill itself with SIGKILL, such as process 1, aborts', async (t) => {
  const cwd = t.testdir();
  execFileSync('mkfifo', [join(cwd, 'pipe')]);
  // Opening a FIFO blocks until it has a writer. The coverage is written before the process aborts.
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
