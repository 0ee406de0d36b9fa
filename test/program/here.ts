import { Writable } from 'node:stream';
import { format } from 'node:util';

import type { Test } from 'tap';

import { runCommand } from '../../dist/program/main.js';
import { SettingsError } from '../../dist/program/settings/error.js';
import {
  createTranscript,
  ENV,
  failsToRun,
  run,
  serving,
  type Ending,
  type LaunchOptions,
  type Process,
  type Program,
} from '../system/program.js';

type Options = Pick<LaunchOptions, 'args' | 'cwd' | 'env'>;

/**
 * Runs a command of the program in this process, in its folder and with its settings until it ends, which it does at
 * the end of the test at the latest. It takes SIGHUP, and every other signal for SIGTERM.
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

/** Collects what this process writes, as slowly as the reader of a pipe, until the returned function is called. */
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
  return serving(launchHere(t, options), (options.env ?? ENV).PLANT_STORE_TOKEN);
}

/** Runs a command in this process to its end. */
export const runHere = (t: Test, options: Options): Promise<Process & Ending> =>
  run(t, options, launchHere);

/** Checks that a command fails in this process, and writes these sentences to stderr and nothing else. */
export const failsHere = (
  t: Test,
  code: number,
  sentences: readonly string[],
  options: Options,
): Promise<void> => failsToRun(t, code, sentences, options, launchHere);

/** Until the test ends, so many milliseconds pass with each look at the clock. */
export function stepClock(t: Test, ms: number): void {
  const before = performance.now.bind(performance);
  let now = 0;
  performance.now = () => (now += ms);
  t.teardown(() => void (performance.now = before));
}

/** The problems for which settings or their files are refused; none if they are read. */
export async function problemsOf(reading: Promise<unknown>): Promise<readonly string[]> {
  const error = await reading.catch((error: unknown) => error);
  return error instanceof SettingsError ? error.problems : [];
}
