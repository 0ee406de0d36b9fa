import { format } from 'node:util';

import type { Test } from 'tap';

import { runCommand } from '../../dist/program/main.js';
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
 * Runs a command of the program in this process, in its folder and with its settings until the test ends. It takes
 * SIGHUP, and every other signal for SIGTERM. Only its output through `console` is seen: lines that a command prints
 * itself would get between those of the tests.
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
    timeUp: new Promise<undefined>(() => undefined),
    request: () => stopping.abort(),
    onHangup: (action: () => void) => void (hangUp = action),
  };
  // Not before its output is collected.
  const ended = Promise.resolve()
    .then(() => runCommand(shutdown, args))
    .then((code): Ending => ({ code, signal: null }));
  const { transcript, note } = createTranscript(ended);
  t.capture(console, 'log', (...line: unknown[]) => note('stdout', `${format(...line)}\n`));
  t.capture(console, 'error', (...line: unknown[]) => note('stderr', `${format(...line)}\n`));
  t.teardown(async () => {
    stopping.abort();
    await ended;
    process.chdir(folderBefore);
    for (const name of Object.keys(settings)) Reflect.deleteProperty(process.env, name);
  });
  return Object.assign(transcript, {
    pid: process.pid,
    ended,
    send: (signal: NodeJS.Signals) => (signal === 'SIGHUP' ? hangUp() : stopping.abort()),
    leave: () => undefined,
  });
}

/** Serves in this process; resolves once requests are accepted. */
export async function startHere(t: Test, options: Options = {}): Promise<Program> {
  return serving(launchHere(t, options), (options.env ?? ENV).PLANT_STORE_TOKEN);
}

/** Runs a command in this process to its end. */
export async function runHere(t: Test, options: Options): Promise<Process & Ending> {
  // In a test of its own, at whose end its settings are removed.
  let ended: Promise<Process & Ending> | undefined;
  await t.test((options.args ?? []).join(' '), (t) =>
    t.resolves((ended = run(t, options, launchHere))),
  );
  return ended as Promise<Process & Ending>;
}

/** Checks that a command fails in this process, and writes these sentences to stderr and nothing else. */
export async function failsHere(
  t: Test,
  code: number,
  sentences: readonly string[],
  options: Options,
): Promise<void> {
  // As in `runHere`.
  await t.test(sentences.join('; '), (t) => failsToRun(t, code, sentences, options, launchHere));
}
