import { relative, resolve } from 'node:path';
import type { TestEvent } from 'node:test/reporters';
import { stripVTControlCharacters } from 'node:util';

const isColoured = process.stdout.isTTY && !process.env.NO_COLOR;
const ROOT = new URL('..', import.meta.url).pathname;

/**
 * Prints a line for each file that passes. Ends with the errors and the output of files that failed, the titles of
 * what was skipped and of what failed, a command that runs one of the latter again, and totals.
 */
export default async function* report(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const started = performance.now();
  const skipped: string[] = [];
  const failed: string[] = [];
  /** A command that runs one of the tests that failed. */
  let again = '';
  let passed = 0;
  const files = new Map<string, FileReport>();
  for await (const { path, type, data } of withFiles(events)) {
    const isWholeFile = 'name' in data && resolve(data.name) === path;
    const file = files.get(path) ?? { titles: [], output: '', failed: 0 };
    if (path) files.set(path, file);
    const name = nameOf(path);
    if (type === 'test:start') {
      file.titles.length = data.nesting;
      file.titles.push(data.name);
    } else if (type === 'test:diagnostic') {
      file.output += `# ${data.message}\n`;
    } else if (type === 'test:stdout' || type === 'test:stderr') {
      file.output += data.message;
    } else if (type === 'test:pass' && data.skip !== undefined) {
      const why = data.skip === true ? 'it asserts nothing' : data.skip;
      skipped.push(`${name}: ${titleOf(file, data)}: ${why}`);
    } else if (type === 'test:pass') {
      if (data.details.type !== 'suite') passed++;
    } else if (type === 'test:fail') {
      const error = data.details.error as Error & { failureType?: string };
      // The tests in it that failed have been reported.
      if (error.failureType === 'subtestsFailed') continue;
      file.failed++;
      const title = isWholeFile ? 'its process failed' : titleOf(file, data);
      failed.push(`${name}: ${title}`);
      again ||= commandOf(name, isWholeFile ? undefined : file.titles[0]);
      file.output += `\n${title}\n${indent(messageOf(error))}\n\n`;
    } else if (type === 'test:complete' && isWholeFile) {
      const seconds = (data.details.duration_ms / 1_000).toFixed(1);
      if (data.details.passed) yield `ok      ${name}, ${seconds} s\n`;
    }
  }
  for (const [path, file] of files) {
    if (file.failed > 0) yield `\nFAILED  ${nameOf(path)}\n${plain(file.output)}`;
  }
  yield section('Skipped', skipped) + section('Failed', failed);
  if (again) yield `\nTo run one of them again:\n  ${again}\n`;
  const seconds = ((performance.now() - started) / 1_000).toFixed(1);
  yield `\n${passed} passed, ${failed.length} failed, ${skipped.length} skipped, ${seconds} s\n`;
}

type DataEvent = Extract<TestEvent, { data: object }>;

/**
 * Adds to each event the path of its file of tests, which is not always its own `file`: that is where an error was
 * thrown. Node reports one file after the other, and tap first what is outside of the tests of a file.
 */
async function* withFiles(
  events: AsyncIterable<TestEvent>,
): AsyncGenerator<DataEvent & { readonly path: string }> {
  const outside: DataEvent[] = [];
  /** The file of the test that is reported. */
  let path = '';
  for await (const event of events) {
    const { type, data } = event;
    if (data === undefined) continue;
    const { file = '', nesting } = data as { file?: string; nesting?: number };
    // Whenever the file is complete.
    if (type === 'test:complete') yield { ...event, path: file };
    else {
      if (type === 'test:start' && nesting === 0) path = file;
      outside.push(event);
      if (path) for (const each of outside.splice(0)) yield { ...each, path };
      if ((type === 'test:pass' || type === 'test:fail') && nesting === 0) path = '';
    }
  }
  for (const event of outside) yield { ...event, path };
}

interface FileReport {
  /** Of the test that runs, and of those around it. */
  readonly titles: string[];
  /** Shown if the file fails: what it wrote, and its errors. */
  output: string;
  failed: number;
}

/** Of `.test/log/lock.test.js`, or of its source: `log/lock.test`. */
function nameOf(path: string): string {
  if (path === '') return 'the first test of a file';
  return relative(ROOT, path)
    .replace(/^\.?test\//, '')
    .replace(/\.[jt]s$/, '');
}

/** The title of a test behind those of the tests around it. */
function titleOf(file: FileReport, test: { name: string; nesting: number }): string {
  return [...file.titles.slice(0, test.nesting), test.name].filter(Boolean).join(' > ');
}

/** A command that runs a file again, or its tests whose titles begin with this one. */
function commandOf(file: string, title?: string): string {
  const grep = title === undefined ? '' : `TAP_GREP='^${title.replace(/[^\w ,:-]/g, '.')}' `;
  return `npm run build:test && ${grep}test/run .test/${file}.js`;
}

function messageOf(error: Error): string {
  const cause = error.cause instanceof Error ? error.cause : error;
  const { message, stack = '' } = cause;
  return stack.includes(message) ? stack : `${message}\n${stack}`;
}

function section(title: string, lines: readonly string[]): string {
  return lines.length === 0 ? '' : `\n${title}:\n${lines.map((line) => `  ${line}\n`).join('')}`;
}

function indent(text: string): string {
  return text.replace(/^/gm, '  ');
}

function plain(text: string): string {
  return isColoured ? text : stripVTControlCharacters(text);
}
