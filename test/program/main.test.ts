import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { createServer } from 'node:http';
import { join, resolve } from 'node:path';

import t, { type Test } from 'tap';

import { encodeRecord } from '../../dist/log/record.js';
import { EXIT, STOPPING } from '../../dist/program/exit.js';
import { listen } from '../service.js';
import {
  asModule,
  ENV,
  FAILED,
  failsToRun,
  follow,
  hasten,
  INTERRUPTED,
  LARGE_LOG,
  launch,
  MISUSED,
  onceReading,
  run,
  SERVER,
  start,
  toItself,
  type LaunchOptions,
  type Process,
} from '../system/program.js';
import { failsHere, runHere } from './here.js';

t.test('the version is that of the package, and known without it, as in a bundle', async (t) => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  const cwd = t.testdir({ 'package.json': '{ "type": "module" }', node_modules: {} });
  cpSync('dist', join(cwd, 'dist'), { recursive: true });
  symlinkSync(resolve('node_modules/typebox'), join(cwd, 'node_modules/typebox'));
  const options = { script: join(cwd, 'dist/server.js'), args: ['--version'] };
  const { code, stdout, stderr } = await run(t, options);
  t.strictSame({ code, stdout, stderr }, { code: 0, stdout: `${version}\n`, stderr: '' });
});

t.test('--help lists the commands, settings and signals, even if a setting is wrong', async (t) => {
  for (const arg of ['--help', '-h', 'help']) {
    const env = { PLANT_STORE_PORT: 'wrong' };
    const { code, stdout, stderr } = await runHere(t, { args: [arg], env });
    t.strictSame({ code, stderr }, { code: 0, stderr: '' });
    const words = ['Usage: plant-store', 'verify', 'repair', 'import', '--help', '--version'];
    const more = ['PLANT_STORE_PORT', 'SIGTERM', 'SIGINT', 'SIGHUP'];
    for (const word of [...words, ...more]) t.match(stdout, word);
    for (const line of stdout.split('\n')) t.ok(line.length <= 100, `${line.length} wide`);
  }
});

t.test('unknown arguments are refused, and named without what may be a token', async (t) => {
  const option = 'no such option here; settings are environment variables, see --help';
  const command = 'no such command with these arguments; see --help';
  const faults = {
    '-x': `-x: ${option}`,
    '--port 8080': `--port: ${option}`,
    '--token=secret': `--token: ${option}`,
    'verify --help': `--help: ${option}`,
    '-h -v': `-h: ${option}`,
    'help verify': `help verify: ${command}`,
    'verify a b': `verify a b: ${command}`,
    'repair a b': `repair a b: ${command}`,
    import: `import: ${command}`,
    'import a b': `import a b: ${command}`,
    'export a': `export a: ${command}`,
  };
  for (const [args, fault] of Object.entries(faults))
    await failsHere(t, MISUSED, [fault], { args: args.split(' ') });
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

for (const command of ['verify', 'repair']) {
  t.test(`${command} refuses what is not a log, names it, and creates none`, async (t) => {
    const cwd = t.testdir({ folder: {} });
    execFileSync('mkfifo', [join(cwd, 'pipe')]);
    const sentences = {
      none: 'no such file or directory (ENOENT)',
      folder: 'it is not a regular file',
      pipe: 'it is not a regular file',
    };
    for (const [name, sentence] of Object.entries(sentences)) {
      const fault = `${cwd}/${name}: ${sentence}`;
      await failsHere(t, FAILED, [fault], { args: [command, name], cwd });
      const env = { PLANT_STORE_FILE: name, PLANT_STORE_PORT: 'wrong' };
      await failsHere(t, FAILED, [`PLANT_STORE_FILE: ${fault}`], { args: [command], cwd, env });
    }
    const fault = 'PLANT_STORE_FILE: must not be empty; leave it out instead';
    const env = { PLANT_STORE_FILE: ' ' };
    await failsHere(t, MISUSED, [fault], { args: [command], cwd, env });
    t.strictSame(readdirSync(cwd).toSorted(), ['folder', 'pipe']);
  });

  t.test(`a signal ends ${command} while it is reading; it changes nothing`, async (t) => {
    const content = `x\n${LARGE_LOG}`;
    const cwd = t.testdir({ 'plants.jsonl': content });
    const options = { args: [command], cwd, env: ENV };
    const preload = onceReading(toItself('SIGINT'));
    const { code, stdout, stderr } = await run(t, { ...options, preload });
    t.equal(code, INTERRUPTED);
    t.match(stderr, /^(?:plant-store: reading .+ %\n)*plant-store: interrupted; .+\n$/);
    t.notMatch(stdout, 'plants.jsonl', 'there is no summary');
    t.strictSame(readdirSync(cwd), ['plants.jsonl'], 'the lock is released');
    t.equal(readFileSync(join(cwd, 'plants.jsonl'), 'utf8'), content);
    t.match((await run(t, options)).stdout, / 1 damaged line/, 'then it is completed');
  });
}

t.test('without a setting, verify and repair take the log in the folder data', async (t) => {
  const cwd = t.testdir({ data: { 'plants.jsonl': '{"id":\n' } });
  const env = { PLANT_STORE_PORT: 'wrong' };
  const verified = await run(t, { args: ['verify'], cwd, env });
  t.match(verified, { code: FAILED, stdout: /1 damaged line$/m });
  const repaired = await runHere(t, { args: ['repair'], cwd, env });
  t.match(repaired, { code: EXIT.done, stdout: /kept 0 plants, moved 1 damaged line to / });
  t.equal(readFileSync(join(cwd, 'data/plants.jsonl'), 'utf8'), '');
});

t.test('a damaged log is refused unchanged, with the commands that help', async (t) => {
  const fern = encodeRecord({ id: 7n, name: 'fern' });
  const content = `${fern}{"id":8,"name":"a fern"} \n`;
  const cwd = t.testdir({ 'plants.jsonl': content });
  const path = join(cwd, 'plants.jsonl');
  const { code, stderr } = await runHere(t, { cwd });
  t.equal(code, FAILED);
  const [damage = '', remedy, ...more] = stderr.split('\n');
  t.ok(damage.startsWith(`plant-store: ${path}: line 2, at byte ${fern.length}: `), damage);
  t.equal(
    remedy,
    `plant-store: the log was not changed: run "plant-store verify ${path}" to list its damaged lines, then "plant-store repair ${path}" to repair them`,
  );
  t.strictSame(more, ['']);
  t.equal(readFileSync(path, 'utf8'), content);
  t.strictSame(readdirSync(cwd), ['plants.jsonl']);
});

t.test(
  'a log that another process has open is refused, with a command that names it',
  async (t) => {
    const cwd = t.testdir();
    await start(t, { cwd, env: ENV });
    const { code, stderr } = await runHere(t, { cwd });
    t.equal(code, FAILED);
    t.match(stderr, `("fuser ${join(cwd, 'plants.jsonl')}" shows which one)`);
  },
);

/** A preload: the package is not installed. */
const without = (name: string): string => {
  const hooks = `export async function resolve(specifier, context, next) {
    if (specifier === '${name}') throw new Error('not found');
    return next(specifier, context);
  }`;
  return `import { register } from 'node:module';
    register(${JSON.stringify(asModule(hooks))});`;
};

t.test('without pg, the program says what to install, if it needs it', async (t) => {
  const fault = 'the package pg cannot be loaded; install it with: npm install pg';
  const env = { PLANT_STORE_DATABASE_URL: 'postgres://plants@db/plants', PLANT_STORE_TOKEN: 'a' };
  await failsToRun(t, FAILED, [fault], { env, preload: without('pg') });
});

t.test('a signal ends the program while its database does not answer', async (t) => {
  const server = createServer();
  const PLANT_STORE_DATABASE_URL = `postgres://plants@127.0.0.1:${await listen(t, server)}/plants`;
  const PLANT_STORE_DATABASE_PASSWORD_FILE = 'password';
  const env = {
    PLANT_STORE_DATABASE_URL,
    PLANT_STORE_DATABASE_PASSWORD_FILE,
    PLANT_STORE_TOKEN: 'a',
  };
  const program = launch(t, { cwd: t.testdir({ password: 'secret' }), env });
  await once(server, 'connection');
  program.send('SIGTERM');
  t.strictSame(await program.ended, { code: 0, signal: null });
});

/** Starts the program with an output that is full, because nobody reads it, and little time for a shutdown. */
function startUnread(
  t: Test,
  output: 'stdout' | 'stderr',
  { args = [], env, preload = '' }: LaunchOptions,
): { readonly program: Process; readonly exited: Promise<unknown[]> } {
  const full = `process.${output}.write('x'.repeat(10_000_000));`;
  const source = preload + full + hasten(STOPPING.totalMs);
  const imports = ['--import', asModule(source)];
  const child = spawn(process.execPath, [...imports, SERVER, ...args], {
    cwd: t.testdirName,
    env: { ...process.env, ...ENV, PLANT_STORE_PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const program = follow(t, child);
  child[output].removeAllListeners('data').pause();
  return { program, exited: once(child, 'exit') };
}

t.test('a program that fails ends even if nobody reads the reason', async (t) => {
  t.testdir();
  const { exited } = startUnread(t, 'stderr', { env: { PLANT_STORE_PORT: 'wrong' } });
  t.strictSame(await exited, [MISUSED, null]);
});

t.test('a command that is told to stop ends even if nobody reads its output', async (t) => {
  t.testdir({ 'plants.jsonl': LARGE_LOG });
  const preload = onceReading(toItself('SIGTERM'));
  const { exited } = startUnread(t, 'stdout', { args: ['verify'], preload });
  t.strictSame(await exited, [INTERRUPTED, null]);
});
