/* The runner of the tests, on files that fail in each way. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { follow } from './system/program.js';

const TAP = `import t from 'tap';\n`;

/** Runs files of tests with these contents, and follows what the runner prints. */
function runTests(t: Test, files: Readonly<Record<string, string>>, env = {}) {
  const folder = t.testdir(files);
  const paths = Object.keys(files).map((name) => join(folder, name));
  const stdio = ['ignore', 'pipe', 'pipe'] as const;
  const child = spawn(process.execPath, ['.test/runner.js', ...paths], {
    stdio: [...stdio],
    env: { ...process.env, COVERAGE: undefined, ...env },
  });
  return Object.assign(follow(t, child), { folder });
}

/** Runs them to their end, and resolves to the sections that the runner prints, and to its last line. */
async function sectionsOf(t: Test, files: Readonly<Record<string, string>>, env = {}) {
  const runner = runTests(t, files, env);
  const { code } = await runner.ended;
  const sections = runner.stdout.trim().split(/\n\n+/);
  return { code, sections, total: sections.at(-1) ?? '' };
}

t.test('a test that waits for ever or blocks the event loop ends with its title', async (t) => {
  const waits = `import 'node:timers/promises';
setInterval(() => {}, 1_000);
t.test('outer', (t) => t.test('it waits', () => new Promise(() => {})));`;
  const blocks = `t.test('it blocks', async () => { for (;;); });`;
  const files = { 'waits.js': TAP + waits, 'blocks.js': TAP + blocks };
  const { code, sections } = await sectionsOf(t, files, { TEST_SILENCE: '1' });
  t.equal(code, 1);
  for (const title of ['/waits: outer > it waits', '/blocks: it blocks'])
    t.ok(
      sections.some((each) => each.includes(`${title}\n  it hangs: nothing has happened for 1 s`)),
      title,
    );
});

t.test('of a test, its first failure is shown, with twenty lines of a diff', async (t) => {
  const fails = `t.test('it fails', async (t) => {
  console.log('the output');
  t.strictSame([], Array.from({ length: 1_000 }, () => 'x'.repeat(1_000)), 'the first');
  t.ok(false, 'the ' + 'second');
});
t.test('it passes', async (t) => t.ok(true));
t.test('it is skipped', { skip: 'a reason' }, async () => {});`;
  const { sections, total } = await sectionsOf(t, { 'fails.js': TAP + fails });
  const [failure = ''] = sections;
  t.match(failure, /: it fails\n {2}the first\n {2}diff: \|\n/);
  t.match(failure, 'the output');
  t.notMatch(failure, 'the second');
  t.equal(failure.match(/^ {4}-.*xxx…$/gm)?.length, 16, 'behind four lines that begin the diff');
  t.match(sections[1], /^Skipped:\n {2}.*: it is skipped: a reason$/);
  t.match(total, /^1 passed, 1 failed, 1 skipped, /);
});

t.test('places are lines of src/ and test/, and a command is shown with its output', async (t) => {
  const { href } = new URL('.', import.meta.url);
  const fails = `import { openPlantLog } from '${href}../dist/index.js';
import { run } from '${href}command.js';
t.test('in src', () => openPlantLog(7));
t.test('a command', () => run('.', 'sh', '-c', 'echo out; echo err >&2; exit 3'));`;
  const { sections } = await sectionsOf(t, { 'fails.js': TAP + fails });
  t.match(sections[0], /^ {4}openPlantLog \(src\/log\/log\.ts:\d+:\d+\)$/m);
  const command =
    /a command failed\n.*fileName: test\/command\.ts\n.*command: sh -c echo.*\n {2}status: 3\n/s;
  t.match(sections[1], command);
  t.match(sections[1], /stdout: \|\n {4}out\n {2}stderr: \|\n {4}err\n/);
});

t.test('a file whose process fails outside of its tests fails with what it wrote', async (t) => {
  const { sections } = await sectionsOf(t, { 'fails.js': `throw new Error('no ' + 'module')` });
  t.match(sections[0], /: outside of its tests\n {2}its process ended with code 1\n/);
  t.match(sections.join('\n'), 'Error: no module');
});
