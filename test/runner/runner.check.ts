/* The runner of the tests, on files that fail in each way. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import t, { type Test } from 'tap';

import { folderOutside } from '../helpers/command.js';
import { asModule } from '../helpers/program.js';

const TAP = `import t from 'tap';\n`;
const HANGS = '  it hangs: nothing has happened for 60 s';
/** What a file runs before it hangs. */
const HANG = `(await import('node:fs')).writeFileSync(process.env.HANGING, '');\n`;
/**
 * A preload for the runner. Instead of 60 s, the runner waits until a file has run {@link HANG},
 * and then 100 ms more to read the output of the file.
 */
const UNTIL_HANGING = `
import { existsSync, rmSync } from 'node:fs';
const set = globalThis.setTimeout;
globalThis.setTimeout = (callback, ms, ...args) => {
  if (ms !== 60_000) return set(callback, ms, ...args);
  const timer = setInterval(() => {
    if (!existsSync(process.env.HANGING)) return;
    clearInterval(timer);
    rmSync(process.env.HANGING);
    set(callback, 100);
  }, 10);
  return timer;
};`;

/** Runs files of tests with these contents. Returns the sections that the runner prints. */
function runTests(t: Test, files: Readonly<Record<string, string>>, env = {}): string[] {
  const folder = t.testdir(files);
  const paths = Object.keys(files).map((name) => join(folder, name));
  const { status, stdout } = spawnSync(process.execPath, ['.test/runner/runner.js', ...paths], {
    encoding: 'utf8',
    env: { ...process.env, COVERAGE: undefined, TAP_GREP: undefined, ...env },
  });
  t.equal(status, 1);
  return stdout.trim().split(/\n\n+/);
}

/** Runs one file after the other. A file that hangs is ended at once instead of after 60 s. */
function runUntilHanging(t: Test, files: Readonly<Record<string, string>>): string[] {
  const HANGING = join(folderOutside(t), 'hanging');
  const NODE_OPTIONS = `--import=${asModule(UNTIL_HANGING)}`;
  return runTests(t, files, { HANGING, NODE_OPTIONS, TEST_JOBS: '1', TEST_SILENCE: undefined });
}

t.test('a test that waits for ever or blocks the event loop is ended and named', async (t) => {
  const waits = `setInterval(() => {}, 1_000);
t.test('outer', (t) => t.test('it waits', async () => {
  ${HANG}
  await new Promise(() => {});
}));`;
  const blocks = `t.test('it blocks', async () => {
  ${HANG}
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
});`;
  const files = { 'waits.js': TAP + waits, 'blocks.js': TAP + blocks };
  const sections = runUntilHanging(t, files);
  for (const title of ['/waits: outer > it waits', '/blocks: it blocks'])
    t.ok(
      sections.some((each) => each.includes(`${title}\n${HANGS}`)),
      title,
    );
});

t.test('a file that hangs before its first test is named, and the other files go on', async (t) => {
  const early = `setInterval(() => {}, 1_000);
t.setTimeout(0);
${HANG}
await new Promise(() => {});`;
  const passes = `t.test('it passes', async (t) => t.ok(true));`;
  const files = { 'early.js': TAP + early, 'passes.js': TAP + passes };
  const [first = '', second = '', failed, , totals] = runUntilHanging(t, files);
  t.match(first, `/early: outside of its tests\n${HANGS}`);
  t.match(second, /^ok .*\/passes, /);
  t.match(failed, /^Failed:\n {2}.*\/early: outside of its tests$/);
  t.match(totals, /^1 passed, 1 failed, 0 skipped, /);
});

t.test('no test file keeps running after the runner is stopped', async (t) => {
  const waits = `import { writeFileSync } from 'node:fs';
writeFileSync(\`\${process.argv[1]}.stat\`, \`/proc/\${process.pid}/stat\`);
t.test('it waits', () => new Promise(() => setInterval(() => {}, 1_000)));`;
  const folder = t.testdir({ 'one.js': TAP + waits, 'other.js': TAP + waits });
  const files = ['one.js', 'other.js'].map((name) => join(folder, name));
  const env = { ...process.env, COVERAGE: undefined };
  const runner = spawn(process.execPath, ['.test/runner/runner.js', ...files], { env });
  for (const file of files) while (!existsSync(`${file}.stat`)) await sleep(10);
  runner.kill('SIGTERM');
  t.strictSame(await once(runner, 'exit'), [1, null]);
  for (const file of files)
    while (existsSync(readFileSync(`${file}.stat`, 'utf8'))) await sleep(10);
});

t.test('a test that leaves a timer, a file or a listener behind fails and names it', async (t) => {
  const leaks = `import { openSync } from 'node:fs';
import { PassThrough } from 'node:stream';
import { drainBody } from '${new URL('../..', import.meta.url).href}dist/http/body.js';
t.test('it leaks', async (t) => {
  t.ok(true);
  drainBody(new PassThrough());
  openSync('/dev/null');
  process.on('SIGUSR2', () => {});
});
t.test('it releases', async (t) => {
  t.ok(true);
  clearTimeout(setTimeout(() => {}, 60_000));
});`;
  const output = runTests(t, { 'leaks.js': TAP + leaks }).join('\n');
  t.match(output, /leaks: it leaks\n/);
  const left =
    /: Timeout, timer of src\/http\/body\.ts:\d+:\d+, \/dev\/null, listener of SIGUSR2\n/;
  t.match(output, left);
  t.notMatch(output, 'leaks: it releases');
});

t.test('a failure shows the assertion or error, and its line in src/ or test/', async (t) => {
  const { href } = new URL('..', import.meta.url);
  const fails = `import { openPlantLog } from '${href}../dist/index.js';
import { execute } from '${href}helpers/command.js';
t.test('it fails', async (t) => {
  console.log('the output');
  t.strictSame([], Array.from({ length: 1_000 }, () => 'x'.repeat(1_000)), 'the first');
  t.ok(false, 'the ' + 'second');
});
t.test('it passes', async (t) => t.ok(true));
t.test('it is skipped', { skip: 'a reason' }, async () => {});
t.test('in src', () => openPlantLog(7));
t.test('a command', () => execute('.', 'sh', '-c', 'echo out; echo err >&2; exit 3'));`;
  const ends = `throw new Error('no ' + 'module')`;
  const sections = runTests(t, { 'fails.js': TAP + fails, 'ends.js': ends }, { TEST_JOBS: '1' });

  const [first = '', inSrc, ofCommand, outside, ...rest] = sections;
  t.match(first, /: it fails\n {2}the first\n {2}diff: \|\n/);
  t.match(first, 'the output');
  t.notMatch(first, 'the second');
  t.equal(first.match(/^ {4}-.*xxx…$/gm)?.length, 15, 'twenty lines of a diff with its head');
  t.match(inSrc, /^ {4}openPlantLog \(src\/log\/log\.ts:\d+:\d+\)$/m);
  const command =
    /a command failed\n.*fileName: test\/helpers\/command\.ts\n.*command: sh -c echo.*\n {2}status: 3\n/s;
  t.match(ofCommand, command);
  t.match(ofCommand, /stdout: \|\n {4}out\n {2}stderr: \|\n {4}err\n/);
  t.match(outside, /: outside of its tests\n {2}its process ended with code 1\n/);
  t.match(outside, 'Error: no module');
  t.match(rest[0], /^Skipped:\n {2}.*: it is skipped: a reason$/);
  t.match(rest.at(-1), /^1 passed, 4 failed, 1 skipped, /);
});
