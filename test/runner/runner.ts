/*
 * Runs test files, each in a process of its own, TEST_JOBS at a time (default: 4). Prints a line
 * for each file that passes. Prints each failure at once: the first failing assertion of a test,
 * and the output of its file until then. At the end, prints the titles of skipped and of failed
 * tests, a command that runs one of the failed tests again, and totals.
 *
 * A file hangs if it begins no test, asserts nothing and prints nothing for TEST_SILENCE seconds
 * (default: 60). It is killed with all processes of its group, and the test that was running fails.
 *
 * This runner exists because neither Node's runner nor tap's does all of this.
 * `node --test --test-timeout` does not end a process whose event loop is blocked (Node 20 and 24).
 * tap's runner takes 1.7 times as long, because it loads hooks into every process that a test
 * starts, and it prints nothing about a file before its end.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { relative, resolve } from 'node:path';

import { Parser, type FinalResults, type Result } from 'tap-parser';
import { stringify } from 'yaml';

const { TEST_JOBS = 4, TEST_SILENCE = 60, COVERAGE } = process.env;
const SILENCE_MS = Number(TEST_SILENCE) * 1_000;
const ROOT = new URL('../..', import.meta.url).pathname;
const PRELOAD = new URL('preload.js', import.meta.url).href;
const OPTIONS = ['--test-reporter=tap', '--import', PRELOAD];
const ENV = COVERAGE === undefined ? process.env : { ...process.env, NODE_V8_COVERAGE: COVERAGE };

/**
 * How many lines are shown of each part of a failure, such as a diff, and of the output of its
 * file.
 */
const MAX_LINES = 20;
const MAX_LINE_LENGTH = 500;

const started = performance.now();
const skipped: string[] = [];
const failed: string[] = [];
/** A command that runs one of the tests that failed. */
let again = '';
let passed = 0;

for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));

const queue = process.argv.slice(2);
await Promise.all(Array.from({ length: Number(TEST_JOBS) }, runFiles));
print(section('Skipped', skipped) + section('Failed', failed));
if (again) print(`\nTo run one of them again:\n  ${again}\n`);
const total = `${passed} passed, ${failed.length} failed, ${skipped.length} skipped`;
print(`\n${total}, ${secondsSince(started)} s\n`);
if (failed.length > 0) process.exitCode = 1;

async function runFiles(): Promise<void> {
  for (let path = queue.shift(); path !== undefined; path = queue.shift()) await runFile(path);
}

async function runFile(path: string): Promise<void> {
  const begun = performance.now();
  const name = nameOf(path);
  /** The output of the file since its latest failure. */
  let output: string[] = [];
  const note = (text: string): void => void output.push(...text.trimEnd().split('\n'));
  const failures: string[] = [];
  const fail: Fail = (title, message, details) => {
    const failure = `${name}: ${title || 'outside of its tests'}`;
    failures.push(failure);
    again ||= commandOf(name, title.split(' > ')[0]);
    const shown = [message, ...linesOf(details), ...output.slice(-MAX_LINES)];
    output = [];
    print(`\nFAILED  ${failure}\n${shown.map((line) => `  ${cut(line)}\n`).join('')}\n`);
  };

  const child = spawn(process.execPath, [...OPTIONS, path], {
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    env: { ...ENV, TAP_TIMEOUT: '0' },
  });
  const kill = (): void => void process.kill(-(child.pid ?? 0), 'SIGKILL');
  process.once('exit', kill);

  const { stdout, stderr } = child;
  if (!stdout || !stderr) throw new Error('there are no pipes');

  let latestTest = '';
  const onSilence = (): void => {
    // Without the first two parts: the name of the file, which is a test for tap, and its path.
    const title = latestTest.split(' > ').slice(2).join(' > ');
    fail(title, `it hangs: nothing has happened for ${SILENCE_MS / 1_000} s`);
    kill();
    // Processes that have left the group may keep the pipes open.
    stdout.destroy();
    stderr.destroy();
  };
  let timer = setTimeout(onSilence, SILENCE_MS);
  const restartTimer = (): void => {
    clearTimeout(timer);
    timer = setTimeout(onSilence, SILENCE_MS);
  };
  child.on('message', (message) => {
    // tap sends objects about its own time limit.
    if (typeof message !== 'string') return;
    latestTest = message;
    restartTimer();
  });
  stderr.setEncoding('utf8').on('data', note).on('data', restartTimer);
  const parser = new Parser().on('extra', note);
  readResults(name, parser, fail);
  stdout.setEncoding('utf8').on('data', restartTimer).pipe(parser);
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  clearTimeout(timer);
  process.off('exit', kill);

  if (code !== 0 && failures.length === 0)
    fail('', `its process ended with ${signal ?? `code ${code}`}`);
  if (failures.length === 0) print(`ok      ${name}, ${secondsSince(begun)} s\n`);
  failed.push(...failures);
}

/** Prints why a test has failed. The title is empty for a failure outside of all tests. */
type Fail = (title: string, message: string, details?: object) => void;

/** Reads the results of a file, or of a test in it, until its end. */
function readResults(file: string, parser: Parser, fail: Fail): void {
  const test = parser.fullname.replaceAll('\\#', '#');
  let subtest: Parser | undefined;
  let isFailureShown = false;
  parser.on('child', (child: Parser) => {
    subtest = child;
    readResults(file, child, fail);
  });
  parser.on('assert', (result: Result) => {
    const { ok, name, skip, closingTestPoint } = result;
    const title = test ? `${test} > ${name}` : name;
    // Tests that TAP_GREP does not select are skipped, too, and are not listed.
    if (skip && !String(skip).startsWith('filter')) skipped.push(`${file}: ${title}: ${skip}`);
    if (ok) return;
    if (closingTestPoint) {
      // If an assertion of the subtest has failed, that failure has been shown.
      if (subtest?.fail === 0) fail(title, 'it has failed', result.diag as object);
    } else if (!isFailureShown) {
      isFailureShown = true;
      fail(test, name, result.diag as object);
    }
  });
  parser.on('complete', ({ ok, count }: FinalResults) => {
    if (parser.level === 0 || subtest) return;
    if (count === 0) skipped.push(`${file}: ${test}: it asserts nothing`);
    else if (ok) passed++;
  });
}

/** The details of a failure: at most MAX_LINES lines of each part, such as a diff. */
function linesOf(details?: object): string[] {
  return Object.entries<unknown>({ ...details }).flatMap(([part, value]) => {
    const text = stringify({ [part]: value }, { lineWidth: 0 });
    const lines = text.trimEnd().split('\n');
    return lines.length <= MAX_LINES ? lines : [...lines.slice(0, MAX_LINES), '  …'];
  });
}

function cut(line: string): string {
  return line.length <= MAX_LINE_LENGTH ? line : `${line.slice(0, MAX_LINE_LENGTH)}…`;
}

/** The short name of a file, such as `log/lock.test` for `.test/log/lock.test.js`. */
function nameOf(path: string): string {
  return relative(ROOT, resolve(path)).replace(/^\.?test\/|\.js$/g, '');
}

/**
 * A command that runs a file again. With a title, it runs only the tests whose titles begin with
 * it.
 */
function commandOf(file: string, title = ''): string {
  const grep = title === '' ? '' : `TAP_GREP='^${title.replace(/[^\w ,:-]/g, '.')}' `;
  return `npm run build:test && ${grep}test/run .test/${file}.js`;
}

function section(title: string, lines: readonly string[]): string {
  return lines.length === 0 ? '' : `\n${title}:\n${lines.map((line) => `  ${line}\n`).join('')}`;
}

function secondsSince(time: number): string {
  return ((performance.now() - time) / 1_000).toFixed(1);
}

function print(text: string): void {
  process.stdout.write(text);
}
