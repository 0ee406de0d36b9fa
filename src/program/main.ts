import { resolve } from 'node:path';

import { reportToConsole } from '../report.js';
import { codeOf, reasonOf } from '../system-error.js';
import { EXIT, failWith, killProcess, outputTaken, type ExitCode } from './exit.js';
import { readLogPath } from './settings.js';
import { SettingsError } from './settings-error.js';
import type { Shutdown } from './signals.js';
import { writersOf } from './writers.js';

/** The version in package.json, which is not there when the program is bundled into one file. */
export const VERSION = '1.0.0';

/** The end of the help of each program. */
const HELP_ON_SIGNALS = `
SIGTERM and SIGINT stop the program once the requests in flight are answered. SIGHUP makes it read
the token file, the certificate and its key again, but stops it if its input is a terminal.`;

/** Runs a command, or returns `undefined` if there is no such command. */
export type Run = (
  command?: string,
  file?: string,
  ...more: readonly string[]
) => ExitCode | Promise<ExitCode> | undefined;

/**
 * Runs a program with the arguments of the process, then ends the process: once all output has been
 * taken, or when the time of a shutdown is up. `logScript` is the path of the program that can `verify` and
 * `repair` a log.
 */
export async function main(
  shutdown: Shutdown,
  help: string,
  logScript: string,
  run: Run,
): Promise<void> {
  const { timeUp } = shutdown;
  // The program continues if the reader of a pipe closes it (EPIPE).
  process.stdout.on('error', () => undefined);
  process.stderr.on('error', () => undefined);
  const ended = dispatch(shutdown, help, run).catch(async (error: unknown) => {
    // From here on, the time of the shutdown runs. If a signal has requested it already, this has no effect.
    shutdown.request();
    return reportFailure(error, shutdown, logScript);
  });
  const code = await Promise.race([ended, timeUp]);
  if (code !== undefined) await Promise.race([outputTaken(), timeUp]);
  else {
    reportToConsole('the shutdown timed out; not all work was completed');
    killProcess();
  }
  process.exit(code);
}

async function dispatch(shutdown: Shutdown, help: string, run: Run): Promise<ExitCode> {
  const args = process.argv.slice(2);
  const [command, ...operands] = args;
  if (['--help', '-h', 'help'].includes(command ?? '') && operands.length === 0)
    return print(`${help}\n${HELP_ON_SIGNALS}`);
  if (command === '--version' && operands.length === 0) return print(VERSION);
  // Without its value, which may be a token.
  const [option] = args.find((arg) => /^-./.test(arg))?.split('=') ?? [];
  if (option !== undefined)
    throw new SettingsError([
      `${option}: no such option here; settings are environment variables, see --help`,
    ]);
  // Only a server reads anything again; other commands end, as they do by default.
  if (command !== undefined) shutdown.onHangup(shutdown.request);
  const code = await run(command, ...operands);
  if (code === undefined)
    throw new SettingsError([
      `${args.join(' ')}: no such command with these arguments; see --help`,
    ]);
  return code;
}

function print(text: string): ExitCode {
  console.log(text);
  return EXIT.done;
}

async function reportFailure(
  error: unknown,
  { requested }: Shutdown,
  logScript: string,
): Promise<ExitCode> {
  if (error instanceof SettingsError) return failWith(EXIT.usage, ...error.faults);
  if (requested.aborted && isCausedBy(error, requested.reason))
    return failWith(EXIT.interrupted, 'interrupted; run the same command again to complete it');
  const messages = [reasonOf(error)];
  if (codeOf(error) === 'damaged')
    messages.push(
      'the log was not changed; the first command lists its damaged lines, the second one repairs them:',
      commandOnLog(logScript, 'verify'),
      commandOnLog(logScript, 'repair'),
    );
  const code = failWith(EXIT.failed, ...messages);
  if (codeOf(error) === 'locked')
    for (const id of await writersOf(logPath())) reportToConsole(`process ${id} has the log open`);
  return code;
}

/** The log that this process has tried to open: the operand of a command on it, or the configured one. */
function logPath(): string {
  const [, , command, file] = process.argv;
  return file === undefined || command === 'import' ? readLogPath(process.env) : resolve(file);
}

/** A command on the log that can be pasted into a shell in any folder. */
function commandOnLog(logScript: string, command: 'verify' | 'repair'): string {
  return [process.execPath, logScript, command, logPath()].map(quote).join(' ');
}

/** A word as a shell reads it. */
function quote(word: string): string {
  return /^[\w./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function isCausedBy(error: unknown, cause: unknown): boolean {
  return error === cause || (error instanceof Error && isCausedBy(error.cause, cause));
}
