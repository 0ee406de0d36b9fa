/*
 * The verbs of a process:
 *
 * - `launch` only starts the program. `follow` collects the output of a process that another
 *   function has started.
 * - `start` launches the program and waits until it serves. `untilServing` waits for a program that
 *   is running.
 * - `run` launches the program and waits until it ends. `expectFailedRun` also checks how it ended.
 * - `says` waits until the program has printed a line, `send` sends it a signal, and `leave` closes
 *   the reading end of its output.
 * - A function whose name ends in `Here` does the same in the process of the test, which covers the
 *   source and takes 0.1 s less.
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
  /** The command that starts the program, in place of `node` and the script. */
  readonly command?: readonly string[];
  /** An open file that the program inherits as its descriptor 3. */
  readonly descriptor?: number;
}

/** How a process ended. */
export interface Ending {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** The ending of a program that succeeded. */
export const DONE: Ending = { code: 0, signal: null };

/** The exit codes of the program other than 0. */
export const FAILED = 1;
export const MISUSED = 2;
export const INTERRUPTED = 3;

type Output = 'stdout' | 'stderr';

/** A process that runs the program. */
export interface Process {
  readonly pid: number;
  /** The output so far. */
  readonly stdout: string;
  readonly stderr: string;
  /** Resolves once the process has ended and all its output has been read. */
  readonly ended: Promise<Ending>;
  /** Resolves once the output matches. If the process ends before, rejects with the output. */
  says(output: Output, pattern: RegExp): Promise<RegExpExecArray>;
  send(signal: NodeJS.Signals): void;
  /** Closes the reading end of the pipe for an output. */
  leave(output: Output): void;
}

/** A program that accepts requests. */
export interface Program extends Process {
  readonly url: string;
  readonly port: number;
  /** The path of the log. */
  readonly log: string;
  /** The number of plants that the program found in the log. */
  readonly plants: number;
  /** The first token that the program accepts. */
  readonly token: string;
  /** Sends a signal, then waits until the program ends. */
  stop(signal: NodeJS.Signals): Promise<Ending>;
}

/**
 * A preload that changes the delay of each timer. `changed` is an expression of `ms`, the delay in
 * milliseconds.
 */
export const changeTimers = (changed: string): string => `
for (const name of ['setTimeout', 'setInterval']) {
  const set = globalThis[name];
  globalThis[name] = (callback, ms, ...args) => set(callback, ${changed}, ...args);
}`;

/**
 * A preload that lets timers of up to 10 s, the longest time of a shutdown, fire 20 times as fast,
 * and longer timers never.
 */
export const HASTY = changeTimers('ms <= 10_000 ? ms / 20 : 2 ** 30');

/**
 * A preload that makes all timers ten times as long: on a busy machine, clients may be slow.
 */
export const PATIENT = changeTimers('10 * ms');

export const SERVER = resolve('dist/server.js');

/** Settings with a log in the working directory, and a token. */
export const ENV = { PLANT_STORE_TOKEN: TOKEN, PLANT_STORE_FILE: 'plants.jsonl' };

/** The settings of a program that keeps its log at this path. */
export function settingsFor(log: string): Record<string, string> {
  return { PLANT_STORE_FILE: log, PLANT_STORE_TOKEN: TOKEN };
}

/** The URL of a module with this source. */
export const asModule = (source: string): string =>
  `data:text/javascript,${encodeURIComponent(source)}`;

/** A preload that runs code before each import. In the code, `specifier` is what is imported. */
export const beforeImports = (code: string): string => {
  const hooks = `export async function resolve(specifier, context, next) {
  ${code};
  return next(specifier, context);
}`;
  return `import { register } from 'node:module';
register(${JSON.stringify(asModule(hooks))});`;
};

/** `test/run` sets COVERAGE to the folder for coverage reports. */
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
 * Collects the output of a process whose stdout and stderr are pipes. The process is killed at the
 * end of the test. If it does not end with code 0, its output is printed, and the runner shows it
 * beside a failure.
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

/** A preload that stops the clock, so that the program reports no progress. */
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

/** Runs the program to its end. Rejects if the program serves requests instead. */
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

/**
 * Runs the program, and checks that it ends with `code` after it has written these sentences to
 * stderr and nothing else.
 */
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

/** Resolves once a program accepts requests. */
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

/** Stops a program with SIGTERM, and checks that it ends with code 0. */
export async function stopCleanly(t: Test, program: Program): Promise<void> {
  t.match(await program.stop('SIGTERM'), { code: 0 }, 'a clean shutdown');
}

/** The options of a program that runs in this process. */
type Options = Pick<LaunchOptions, 'args' | 'cwd' | 'env'>;

/**
 * Starts a command of the program in this process, which has the working directory and the settings
 * of the command until the command ends. At the end of the test, the command is stopped. `send`
 * sends it SIGHUP, and takes every other signal for SIGTERM.
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
  // In a microtask: the command must not begin before its output is collected.
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
 * Collects the output of this process until the returned function is called. As with a pipe, a
 * write ends after the reader has read it.
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

/** Starts the program in this process, and resolves once it accepts requests. */
export async function startHere(t: Test, options: Options = {}): Promise<Program> {
  return untilServing(launchHere(t, options), (options.env ?? ENV).PLANT_STORE_TOKEN);
}

/** Runs a command in this process to its end. */
export const runHere = (t: Test, options: Options): Promise<Process & Ending> =>
  run(t, options, launchHere);

/**
 * Does the same as `expectFailedRun` in this process.
 */
export const expectFailedRunHere = (
  t: Test,
  code: number,
  sentences: readonly string[],
  options: Options,
): Promise<void> => expectFailedRun(t, code, sentences, options, launchHere);

/**
 * The problems because of which settings or their files are refused. Empty if they are accepted.
 */
export async function problemsOf(reading: Promise<unknown>): Promise<readonly string[]> {
  const error = await reading.catch((error: unknown) => error);
  return error instanceof SettingsError ? error.problems : [];
}
