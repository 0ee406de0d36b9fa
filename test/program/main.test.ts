import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { createServer } from 'node:http';
import { join, resolve } from 'node:path';

import t, { type Test } from 'tap';

import { encodeRecord } from '../../dist/log/record.js';
import { TOKEN } from '../client.js';
import { STOPPING } from '../../dist/program/exit.js';
import { listen } from '../service.js';
import {
  failsToRun,
  follow,
  hasten,
  LARGE_LOG,
  onceReading,
  run,
  SERVER,
  toItself,
  type LaunchOptions,
  type Process,
} from '../system/program.js';

const FAILED = 1;
const MISUSED = 2;
const INTERRUPTED = 3;
const ENV = { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: 'plants.jsonl' };

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

t.test('unknown arguments are refused, and named without what may be a token', async (t) => {
  const options = {
    '-x': ['-x'],
    '--port': ['--port', '8080'],
    '--token': ['--token=secret'],
    '--help': ['verify', '--help'],
    '-h': ['-h', '-v'],
  };
  for (const [option, args] of Object.entries(options)) {
    const message = `${option}: no such option here; settings are environment variables, see --help`;
    await failsToRun(t, MISUSED, [message], { args });
  }
  for (const args of [
    ['help', 'verify'],
    ['verify', 'a', 'b'],
    ['repair', 'a', 'b'],
  ])
    await failsToRun(
      t,
      MISUSED,
      [`${args.join(' ')}: no such command with these arguments; see --help`],
      { args },
    );
});

t.test('a damaged log is refused unchanged, with commands that can be pasted', async (t) => {
  const fern = encodeRecord({ id: 7n, name: 'fern' });
  const content = `${fern}{"id":8,"name":"a fern"} \n`;
  const folder = "Anna's plants";
  const cwd = t.testdir({ [folder]: { 'plants.jsonl': content } });
  const env = { ...ENV, PLANT_STORE_FILE: `${folder}/plants.jsonl` };
  const path = join(cwd, folder, 'plants.jsonl');
  const damage =
    'it is a plant, but not a record, which has id, name, tag in this order and no white space';
  const [verify, repair] = ['verify', 'repair'].map((command) =>
    [process.execPath, SERVER, command, `'${path.replace("'", "'\\''")}'`].join(' '),
  ) as [string, string];
  const sentences = [
    `${path}: line 2, at byte ${fern.length}: ${damage}`,
    'the log was not changed; the first command lists its damaged lines, the second one moves them aside:',
    verify,
    repair,
  ];
  await failsToRun(t, FAILED, sentences, { cwd, env });
  t.equal(readFileSync(path, 'utf8'), content);
  t.strictSame(readdirSync(join(cwd, folder)), ['plants.jsonl']);

  const pasted = { cwd: '/', encoding: 'utf8' } as const;
  t.match(spawnSync('sh', ['-c', verify], pasted), { status: FAILED, stdout: /^line 2, / });
  t.match(spawnSync('sh', ['-c', repair], pasted), { status: 0, stdout: /kept 1 plant/ });
});

/** Starts the program with an output that is full, because nobody reads it, and little time for a shutdown. */
function startUnread(
  t: Test,
  output: 'stdout' | 'stderr',
  { args = [], env, preload = '' }: LaunchOptions,
): { readonly program: Process; readonly exited: Promise<unknown[]> } {
  const full = `process.${output}.write('x'.repeat(10_000_000));`;
  const source = preload + full + hasten(STOPPING.totalMs);
  const imports = ['--import', `data:text/javascript,${encodeURIComponent(source)}`];
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
  const env = { PLANT_STORE_PORT: String(await listen(t, createServer())) };
  const { exited } = startUnread(t, 'stderr', { env });
  t.strictSame(await exited, [FAILED, null]);
});

t.test('a program that is told to stop ends even if nobody reads its output', async (t) => {
  t.testdir();
  const { program, exited } = startUnread(t, 'stderr', {});
  await program.says('stdout', /token: /);
  program.send('SIGTERM');
  t.strictSame(await exited, [0, null]);
});

t.test('a command that is told to stop ends even if nobody reads its output', async (t) => {
  t.testdir({ 'plants.jsonl': LARGE_LOG });
  const preload = onceReading(toItself('SIGTERM'));
  const { exited } = startUnread(t, 'stdout', { args: ['verify'], preload });
  t.strictSame(await exited, [INTERRUPTED, null]);
});
