/*
 * Runs files of tests, each in a process of its own, TEST_JOBS at a time (default: 4). Prints a line for each file that
 * passes, and each failure at once: the first failing assertion of a test, and what its file wrote until then. Ends with
 * the titles of what was skipped and of what failed, a command that runs one of the latter again, and totals.
 *
 * A file that neither begins a test, asserts nor prints anything for TEST_SILENCE seconds (default: 150) hangs, and is
 * killed with all processes of its group. The runners of Node and tap show nothing until then: Node's shows one file after
 * the other, tap reports to it once a file is complete, and loads hooks into every process that a test starts.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { relative, resolve } from 'node:path';
import { createInterface } from 'node:readline';

const { TEST_JOBS = 4, TEST_SILENCE = 150, COVERAGE } = process.env;
const SILENCE_MS = Number(TEST_SILENCE) * 1_000;
const SIGNALS = ['SIGINT', 'SIGTERM'] as const;
const ROOT = new URL('..', import.meta.url).pathname;
const PRELOAD = new URL('preload.js', import.meta.url).href;
const OPTIONS = ['--enable-source-maps', '--test-reporter=tap', '--import', PRELOAD];
const ENV = COVERAGE === undefined ? process.env : { ...process.env, NODE_V8_COVERAGE: COVERAGE };

/** How many lines are shown of each part of a failure, such as a diff, and of what its file wrote. */
const MAX_LINES = 20;
const MAX_LINE_LENGTH = 500;

/** A line of TAP: the result of an assertion or a test, or the title of a test with its first result. */
const TAP = /^( *)(?:(not )?ok \d+(?: - )?(.*?)(?: # (\S.*))?|# Subtest: (.*))$/;

const started = performance.now();
const skipped: string[] = [];
const failed: string[] = [];
/** A command that runs one of the tests that failed. */
let again = '';
let passed = 0;

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
  const results = readResults(name);
  if (!existsSync(path)) {
    results.fail([], 'there is no such file');
    return;
  }

  const child = spawn(process.execPath, [...OPTIONS, path], {
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    env: { ...ENV, TAP_TIMEOUT: '0' },
  });
  const kill = (): void => void process.kill(-(child.pid ?? 0), 'SIGKILL');
  const onSignal = (): void => {
    kill();
    process.exit(1);
  };
  for (const signal of SIGNALS) process.once(signal, onSignal);

  const { stdout, stderr } = child;
  if (!stdout || !stderr) throw new Error('there are no pipes');

  let latestTest = '';
  const onSilence = (): void => {
    const titles = latestTest.split(' > ').slice(2);
    results.fail(titles, `it hangs: nothing has happened for ${SILENCE_MS / 1_000} s`);
    kill();
    // Processes that have left the group may keep the pipes open.
    stdout.destroy();
    stderr.destroy();
  };
  // Before the first test, to load all modules may take longer.
  let timer = setTimeout(onSilence, SILENCE_MS * 10);
  const restartTimer = (): void => {
    clearTimeout(timer);
    timer = setTimeout(onSilence, SILENCE_MS);
  };
  child.on('message', (title: string) => {
    latestTest = title;
    restartTimer();
  });
  stderr.setEncoding('utf8').on('data', (text: string) => {
    results.note(text);
    restartTimer();
  });
  createInterface(stdout).on('line', (line) => {
    results.read(line);
    restartTimer();
  });
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  clearTimeout(timer);
  for (const signal of SIGNALS) process.off(signal, onSignal);

  if (code !== 0 && !results.hasFailed())
    results.fail([], `its process ended with ${signal ?? `code ${code}`}`);
  if (!results.hasFailed()) print(`ok      ${name}, ${secondsSince(begun)} s\n`);
}

interface Results {
  read(line: string): void;
  /** Keeps what the file has written to stderr. */
  note(text: string): void;
  fail(titles: readonly string[], message: string): void;
  hasFailed(): boolean;
}

/** A test whose assertions are being read, or the file around all tests. */
interface Running {
  readonly title: string;
  /** Nothing is asserted in it. */
  isEmpty: boolean;
  hasSubtests: boolean;
  hasFailed: boolean;
}

/** Reads what tap prints for one file, line by line, and prints its failures. */
function readResults(name: string): Results {
  const root: Running = { title: '', isEmpty: false, hasSubtests: true, hasFailed: false };
  /** The test that runs, behind the file and the tests around it. */
  const running = [root];
  /** What the file has written since its latest failure. */
  let output: string[] = [];
  /** The details of the latest result: `undefined` once they have been read, or if there cannot be any. */
  let details: string[] | undefined;
  let isInDetails = false;
  /** The failure to which they belong. */
  let failure: { readonly titles: readonly string[]; readonly message: string } | undefined;

  const fail = (
    titles: readonly string[],
    message: string,
    lines: readonly string[] = [],
  ): void => {
    for (const test of running) test.hasFailed = true;
    const title = titles.join(' > ') || 'outside of its tests';
    failed.push(`${name}: ${title}`);
    again ||= commandOf(name, titles[0]);
    const shown = [message, ...lines, ...output.slice(-MAX_LINES).map(cut)];
    print(`\nFAILED  ${name}: ${title}\n${shown.map((line) => `  ${line}\n`).join('')}\n`);
    output = [];
  };
  const endDetails = (): void => {
    if (failure) fail(failure.titles, failure.message, shorten(details ?? []));
    failure = details = undefined;
    isInDetails = false;
  };

  /** Reads the result of an assertion, or of a test at its end. */
  const readResult = (depth: number, isOk: boolean, title: string, directive: string): void => {
    const test = running[depth + 1];
    running.length = depth + 1;
    const around = running.at(-1) ?? root;
    const titles = running.slice(1).map((each) => each.title);
    details = [];
    if (directive.startsWith('SKIP') || (isOk && test?.isEmpty)) {
      const reason = test ? 'it asserts nothing' : directive.slice('SKIP '.length);
      // Of the tests that were not selected, each would be listed.
      if (!reason.startsWith('filter'))
        skipped.push(`${name}: ${[...titles, title].join(' > ')}: ${reason}`);
    } else if (isOk) {
      if (test && !test.hasSubtests) passed++;
    } else if (test?.hasFailed) {
      around.hasFailed = true;
    } else if (test) {
      failure = { titles: [...titles, title], message: 'it has failed' };
    } else if (!around.hasFailed) {
      failure = { titles, message: title };
    }
  };

  return {
    hasFailed: () => root.hasFailed,
    fail,
    note: (text) => void output.push(...text.trimEnd().split('\n')),
    read(line) {
      if (isInDetails) {
        if (/^ *\.\.\.$/.test(line)) endDetails();
        else details?.push(line);
        return;
      }
      if (details && /^ *---$/.test(line)) {
        isInDetails = true;
        return;
      }
      endDetails();
      const [, indentation = '', not, result, directive = '', subtest] = TAP.exec(line) ?? [];
      const depth = indentation.length / 4;
      if (result !== undefined) {
        readResult(depth, not === undefined, result.replaceAll('\\#', '#'), directive);
      } else if (subtest !== undefined) {
        running.length = depth + 1;
        for (const test of running.slice(-1)) test.hasSubtests = true;
        const title = subtest.replaceAll('\\#', '#');
        running.push({ title, isEmpty: false, hasSubtests: false, hasFailed: false });
      } else if (/^ *1\.\.0$/.test(line)) {
        for (const test of running.slice(-1)) test.isEmpty = true;
      } else if (!/^ *(?:TAP version 1[34]|1\.\.\d+|# time=.*|)$/.test(line)) {
        output.push(line);
      }
    },
  };
}

/** The details of a failure, without the indentation: at most so many lines of each of its parts, such as a diff. */
function shorten(details: readonly string[]): string[] {
  const indentation = /^ */.exec(details[0] ?? '')?.[0].length ?? 0;
  const shown: string[] = [];
  let lines = 0;
  for (const detail of details) {
    const line = cut(detail.slice(indentation));
    lines = line.startsWith(' ') || line === '' ? lines + 1 : 0;
    if (lines <= MAX_LINES) shown.push(line);
    else if (lines === MAX_LINES + 1) shown.push('  …');
  }
  return shown;
}

function cut(line: string): string {
  return line.length <= MAX_LINE_LENGTH ? line : `${line.slice(0, MAX_LINE_LENGTH)}…`;
}

/** Of `.test/log/lock.test.js`: `log/lock.test`. */
function nameOf(path: string): string {
  return relative(ROOT, resolve(path)).replace(/^\.?test\/|\.js$/g, '');
}

/** A command that runs a file again, or its tests whose titles begin with this one. */
function commandOf(file: string, title?: string): string {
  const grep = title === undefined ? '' : `TAP_GREP='^${title.replace(/[^\w ,:-]/g, '.')}' `;
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
