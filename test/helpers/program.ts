/*
 * The verbs of a process. To *launch* a program only starts it; to *follow* a process collects the
 * output of one that another function has started. To *start* a program waits until it serves, as
 * `untilServing` does for one that runs. To *run* it waits until it ends; `expectFailedRun` checks
 * how. A program `says` a line, is sent a signal by `send`, and loses the reader of its output by
 * `leave`. Functions whose names end in `Here` do the same in this process, which covers the source
 * and saves 0.1 s.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { Writable } from 'node:stream';
import { format } from 'node:util';

import type { Test } from 'tap';

import { runCommand } from '../../dist/program/main.js';
import { SettingsError } from '../../dist/program/settings/error.js';
import { TOKEN } from './client.js';

export interface LaunchOptions {
  readonly args?: readonly string[];
  /** Environment variables. The program inherits none of the test's `PLANT_STORE_*`. */
  readonly env?: Readonly<Record<string, string>>;
  /** The working directory. */
  readonly cwd?: string;
  /** The script of the program. Default: `dist/server.js`. */
  readonly script?: string;
  /** The source of a module that Node imports before the program. */
  readonly preload?: string;
  /** A command that runs the program in its own process: `strace`, `prlimit`, `unshare`. */
  readonly under?: readonly string[];
  /** What starts the program, in place of `node` and the script. */
  readonly command?: readonly string[];
  /** What the program inherits as its descriptor 3. */
  readonly descriptor?: number;
}

/** How a process ended. */
export interface Ending {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** The ending of a program that has done what it should. */
export const DONE: Ending = { code: 0, signal: null };

/** The exit codes of the programs other than 0. */
export const FAILED = 1;
export const MISUSED = 2;
export const INTERRUPTED = 3;

type Output = 'stdout' | 'stderr';

/** The built program in a process of its own. */
export interface Process {
  readonly pid: number;
  /** What it has written so far. */
  readonly stdout: string;
  readonly stderr: string;
  /** Resolves once the process has ended and all its output has been read. */
  readonly ended: Promise<Ending>;
  /** Resolves once its output matches; rejects, with that output, if it ends first. */
  says(output: Output, pattern: RegExp): Promise<RegExpExecArray>;
  send(signal: NodeJS.Signals): void;
  /** Closes the reading end of a pipe. */
  leave(output: Output): void;
}

/** A program that accepts requests. */
export interface Program extends Process {
  readonly url: string;
  readonly port: number;
  /** The path of the log. */
  readonly log: string;
  /** The number of plants it found there. */
  readonly plants: number;
  /** The first token it accepts. */
  readonly token: string;
  /** Sends a signal, then waits for the end. */
  stop(signal: NodeJS.Signals): Promise<Ending>;
}

/** A preload that changes how many milliseconds `ms` timers take. */
export const changeTimers = (changed: string): string => `
for (const name of ['setTimeout', 'setInterval']) {
  const set = globalThis[name];
  globalThis[name] = (callback, ms, ...args) => set(callback, ${changed}, ...args);
}`;

/**
 * A preload with which timers of up to 10 s, the longest time of a shutdown, fire 20 times as fast,
 * and others never.
 */
export const HASTY = changeTimers('ms <= 10_000 ? ms / 20 : 2 ** 30');

/**
 * A preload with which the program waits ten times as long for clients, which a busy machine may
 * need.
 */
export const PATIENT = changeTimers('10 * ms');

export const SERVER = resolve('dist/server.js');

/** A log in the working directory, and a token. */
export const ENV = { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: 'plants.jsonl' };

/** The settings of a program that keeps its log at this path. */
export function settingsFor(log: string): Record<string, string> {
  return { PLANT_STORE_FILE: log, PLANT_STORE_TOKEN: TOKEN };
}

/** The URL of a module with this source. */
export const asModule = (source: string): string =>
  `data:text/javascript,${encodeURIComponent(source)}`;

/** A preload that runs code before each import, of `specifier`. */
export const beforeImports = (code: string): string => {
  const hooks = `export async function resolve(specifier, context, next) {
  ${code};
  return next(specifier, context);
}`;
  return `import { register } from 'node:module';
register(${JSON.stringify(asModule(hooks))});`;
};

/** `test/run` names the folder for reports of coverage. */
const { COVERAGE } = process.env;
const COVERED = COVERAGE === undefined ? {} : { NODE_V8_COVERAGE: COVERAGE };

/** Starts the program. The process is killed when the test ends. */
export function launch(t: Test, options: LaunchOptions = {}): Process {
  const {
    args = [],
    env = {},
    cwd = process.cwd(),
    script = SERVER,
    preload,
    under = [],
    descriptor,
  } = options;
  const given = Object.entries(process.env).filter(([name]) => !name.startsWith('PLANT_STORE_'));
  const imports = preload === undefined ? [] : ['--import', asModule(preload)];
  const { command = [process.execPath, ...imports, script] } = options;
  const [executable = '', ...rest] = [...under, ...command, ...args];
  const child = spawn(executable, rest, {
    cwd,
    env: { ...Object.fromEntries(given), ...COVERED, PLANT_STORE_PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'pipe', ...(descriptor === undefined ? [] : [descriptor])],
  });
  return follow(t, child);
}

/**
 * A running program with pipes for its output. It is killed at the end of the test. If it does not
 * end with code 0, it prints what the program has written, which the runner shows beside a failure.
 */
export function follow(t: Test, child: ChildProcess): Process {
  const ended = new Promise<Ending>((resolve) =>
    child.once('close', (code, signal) => resolve({ code, signal })),
  );
  const { transcript, note } = createTranscript(ended);
  for (const output of ['stdout', 'stderr'] as const)
    child[output]?.setEncoding('utf8').on('data', (text: string) => note(output, text));
  void ended.then(({ code, signal }) => {
    if (code === 0) return;
    const written = transcript.stdout + transcript.stderr;
    process.stderr.write(
      `${child.spawnfile} ended with ${signal ?? `code ${code}`}:\n${written}\n`,
    );
  });
  t.teardown(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  return Object.assign(transcript, {
    pid: child.pid ?? 0,
    ended,
    send: (signal: NodeJS.Signals) => void child.kill(signal),
    leave: (output: Output) => void child[output]?.destroy(),
  });
}

/** A preload with which the clock stands still, so that no progress is reported. */
export const STILL = 'performance.now = () => 0;';

/** Collects what a program writes until it ends. */
function createTranscript(ended: Promise<unknown>): {
  readonly transcript: Pick<Process, Output | 'says'>;
  readonly note: (output: Output, text: string) => void;
} {
  const written = { stdout: '', stderr: '' };
  let over = false;
  let onEvent = (): void => undefined;
  void ended.then(() => {
    over = true;
    onEvent();
  });
  return {
    note(output, text) {
      written[output] += text;
      onEvent();
    },
    transcript: {
      get stdout() {
        return written.stdout;
      },
      get stderr() {
        return written.stderr;
      },
      async says(output, pattern) {
        for (;;) {
          const match = pattern.exec(written[output]);
          if (match) return match;
          if (over) throw new Error(`the program ended; it wrote ${JSON.stringify(written)}`);
          await new Promise<void>((resolve) => (onEvent = resolve));
        }
      },
    },
  };
}

/** Runs the program to its end. Rejects if it serves. */
export async function run(
  t: Test,
  options: LaunchOptions,
  begin = launch,
): Promise<Process & Ending> {
  const program = begin(t, options);
  const ending = await program.says('stdout', /^plant-store listening/).then(
    () => Promise.reject(new Error('the program serves')),
    () => program.ended,
  );
  return { ...program, ...ending, stdout: program.stdout, stderr: program.stderr };
}

/** Checks that the program fails, and writes these sentences to stderr and nothing else. */
export async function expectFailedRun(
  t: Test,
  code: number,
  sentences: readonly string[],
  options: LaunchOptions,
  begin = launch,
): Promise<void> {
  const ended = await run(t, options, begin);
  const stderr = sentences.map((sentence) => `plant-store: ${sentence}\n`).join('');
  t.strictSame(
    { code: ended.code, stdout: ended.stdout, stderr: ended.stderr },
    { code, stdout: '', stderr },
  );
}

const FIRST_LINES =
  /^plant-store listening on (?<url>https?:.+:(?<port>\d+))\nlog: (?<log>.+)\nplants: (?<plants>\d+)\ntoken: (?<token>.+)\n/;

/** Starts the program and resolves once it accepts requests. */
export async function start(t: Test, options: LaunchOptions): Promise<Program> {
  return untilServing(launch(t, options), options.env?.PLANT_STORE_TOKEN);
}

/** Resolves once a program serves. */
export async function untilServing(program: Process, givenToken?: string): Promise<Program> {
  const { groups = {} } = await program.says('stdout', FIRST_LINES);
  const { url = '', log = '', token = '' } = groups;
  const tokens = givenToken ?? readFileSync(token, 'utf8');
  return Object.assign(program, {
    url,
    port: Number(groups.port),
    log,
    plants: Number(groups.plants),
    token: tokens.trim().split(/\s+/)[0] ?? '',
    stop(signal: NodeJS.Signals) {
      program.send(signal);
      return program.ended;
    },
  });
}

/** Checks that a program ends with code 0 on a SIGTERM. */
export async function stopCleanly(t: Test, program: Program): Promise<void> {
  t.match(await program.stop('SIGTERM'), { code: 0 }, 'a clean shutdown');
}

/** What can be chosen for a program in this process. */
type Options = Pick<LaunchOptions, 'args' | 'cwd' | 'env'>;

/**
 * Runs a command of the program in this process, in its folder and with its settings until it ends,
 * which it does at the end of the test at the latest. It takes SIGHUP, and every other signal for
 * SIGTERM.
 */
export function launchHere(t: Test, options: Options = {}): Process {
  const { args = [], cwd = t.testdir(), env = ENV } = options;
  const folderBefore = process.cwd();
  process.chdir(cwd);
  const settings = { PLANT_STORE_PORT: '0', ...env };
  Object.assign(process.env, settings);
  const stopping = new AbortController();
  let hangUp = (): void => undefined;
  const shutdown = {
    requested: stopping.signal,
    request: () => stopping.abort(),
    onHangup: (action: () => void) => void (hangUp = action),
  };
  // Not before its output is collected.
  const ended = Promise.resolve()
    .then(() => runCommand(shutdown, args))
    .then(async (code): Promise<Ending> => {
      await restoreOutput();
      process.chdir(folderBefore);
      for (const name of Object.keys(settings)) Reflect.deleteProperty(process.env, name);
      return { code, signal: null };
    });
  const { transcript, note } = createTranscript(ended);
  const restoreOutput = collectOutput(note);
  t.teardown(async () => {
    stopping.abort();
    await ended;
  });
  return Object.assign(transcript, {
    pid: process.pid,
    ended,
    send: (signal: NodeJS.Signals) => (signal === 'SIGHUP' ? hangUp() : stopping.abort()),
    leave: () => undefined,
  });
}

/**
 * Collects what this process writes, as slowly as the reader of a pipe, until the returned function
 * is called.
 */
function collectOutput(note: ReturnType<typeof createTranscript>['note']): () => Promise<void> {
  const pipe = new Writable({
    write(bytes, _encoding, taken) {
      note('stdout', String(bytes));
      setImmediate(taken);
    },
  });
  const { log, error } = console;
  console.log = (...line: unknown[]) => void pipe.write(`${format(...line)}\n`);
  console.error = (...line: unknown[]) => note('stderr', `${format(...line)}\n`);
  const { stdout } = process;
  Object.defineProperty(process, 'stdout', { value: pipe, configurable: true });
  return () => {
    Object.assign(console, { log, error });
    Object.defineProperty(process, 'stdout', { value: stdout, configurable: true });
    return new Promise((resolve) => pipe.end(resolve));
  };
}

/** Serves in this process; resolves once requests are accepted. */
export async function startHere(t: Test, options: Options = {}): Promise<Program> {
  return untilServing(launchHere(t, options), (options.env ?? ENV).PLANT_STORE_TOKEN);
}

/** Runs a command in this process to its end. */
export const runHere = (t: Test, options: Options): Promise<Process & Ending> =>
  run(t, options, launchHere);

/**
 * Checks that a command fails in this process, and writes these sentences to stderr and nothing
 * else.
 */
export const expectFailedRunHere = (
  t: Test,
  code: number,
  sentences: readonly string[],
  options: Options,
): Promise<void> => expectFailedRun(t, code, sentences, options, launchHere);

/** The problems for which settings or their files are refused; none if they are read. */
export async function problemsOf(reading: Promise<unknown>): Promise<readonly string[]> {
  const error = await reading.catch((error: unknown) => error);
  return error instanceof SettingsError ? error.problems : [];
}
