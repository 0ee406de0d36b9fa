import { reasonOf } from '../system-error.js';
import { commandsHelp, COMMANDS } from './commands/table.js';
import { EXIT, failWith, type ExitCode } from './exit.js';
import { PROGRAM } from './output.js';
import { SettingsError } from './settings/error.js';
import { nearestSettings } from './settings/read.js';
import { SETTINGS, settingsHelp } from './settings/table.js';
import { isAbort, type Shutdown } from './signals.js';
import { VERSION } from './version.js';

const HELP = `Usage: ${commandsHelp()}

In place of plant-store, type: ${PROGRAM}

Settings are environment variables:

${settingsHelp()}

Plants are kept in the log, or in a database if its URL is set. Without PLANT_STORE_TOKEN and
PLANT_STORE_TOKEN_FILE, the tokens are in the file token beside the log; if that file is missing, it
is created with a random token. With a database, one of the two must be set.

SIGTERM and SIGINT stop the program once the requests in flight are answered. SIGHUP makes it read
the token file, the certificate and its key again, but stops it if its input is a terminal.`;

/**
 * Runs the program with the arguments of the process. The process ends by itself once all output
 * has been taken and no file operation is pending. `process.exit` is not used: it waits for threads
 * that a disk or a DNS lookup blocks, and no timer or signal can end the process while it waits.
 */
export async function main(shutdown: Shutdown): Promise<void> {
  // If the reader of a pipe closes it, the program continues: without a listener, EPIPE ends it.
  process.stdout.on('error', () => undefined);
  process.stderr.on('error', () => undefined);
  process.exitCode = await runCommand(shutdown, process.argv.slice(2));
}

/** Runs a command, and resolves to its exit code. If the command fails, reports why. */
export async function runCommand(shutdown: Shutdown, args: readonly string[]): Promise<ExitCode> {
  try {
    // A command ends on SIGHUP, as a program without a listener would. The server does not.
    if (args.length > 0) shutdown.onHangup(shutdown.request);
    return await dispatch(args, shutdown);
  } catch (error) {
    // Starts the time limit of the shutdown, unless a signal has started it. Without a limit, a
    // process whose output nobody reads would never end.
    shutdown.request();
    if (error instanceof SettingsError) return failWith(EXIT.usage, ...error.problems);
    if (isAbort(error, shutdown.requested))
      return failWith(EXIT.interrupted, 'interrupted; run the same command again to complete it');
    return failWith(EXIT.failed, ...reasonOf(error).split('\n'));
  }
}

/** @throws SettingsError if there is no command with these arguments. */
async function dispatch(args: readonly string[], shutdown: Shutdown): Promise<ExitCode> {
  const [name, ...rest] = args;
  if (name === 'help' || args.includes('--help') || args.includes('-h')) return print(HELP);
  if (name === '--version') return print(VERSION);
  // Without arguments, `name` is undefined, and the command is the server.
  const command = COMMANDS.find((each) => each.name === name);
  if (!command) throw new SettingsError([problemOf(String(name))]);
  // `-` alone is a file: stdin.
  const option = rest.find((argument) => /^-./.test(argument));
  if (option !== undefined) throw new SettingsError([problemOf(option)]);
  const [file, ...more] = rest;
  if (more.length > 0) throw new SettingsError([`${name}: takes one file; see --help`]);
  if (command.file !== 'required') return command.run(shutdown, file);
  if (file === undefined) throw new SettingsError([`${name}: needs a file; see --help`]);
  return command.run(shutdown, file);
}

/**
 * Why an argument is refused. Of an option, the message has only the name, without the value, which
 * may be a token: `--port` of `--port=80`, `-p` of `-p80`, `PORT` of `PORT=80`.
 */
function problemOf(argument: string): string {
  const isOption = /^-|=/.test(argument);
  if (!isOption) return `${argument}: no such command; see --help`;
  const option = argument.replace(/^(-[^-]|[^=]*).*/s, '$1');
  const word = option.replace(/^-+/, '').replaceAll('-', '_').toUpperCase();
  const setting = word.replace(/^(PLANT_STORE_)?/, 'PLANT_STORE_');
  const instead =
    setting in SETTINGS
      ? `set the environment variable ${setting}`
      : `settings are environment variables; the nearest ones are ${nearestSettings(setting)}`;
  return `${option}: no such option; ${instead}; see --help`;
}

function print(text: string): ExitCode {
  console.log(text);
  return EXIT.done;
}
