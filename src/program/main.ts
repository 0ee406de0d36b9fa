import { reasonOf } from '../system-error.js';
import { EXIT, failWith, type ExitCode } from './exit.js';
import { exportPlants } from './commands/export.js';
import { importPlants } from './commands/import.js';
import { openStore, withLog } from './open-store.js';
import { repair } from './commands/repair.js';
import { serve } from './commands/serve.js';
import { SettingsError } from './settings/error.js';
import { readServerSettings } from './settings/rules.js';
import { settingsHelp } from './settings/table.js';
import { isAbort, type Shutdown } from './signals.js';
import { verify } from './commands/verify.js';
import { VERSION } from './version.js';

const HELP = `Usage: plant-store                 store plants: POST /plants with a bearer token
       plant-store verify [FILE]   check every line of the log, and change nothing
       plant-store repair [FILE]   rewrite damaged lines that hold a plant, move others aside
       plant-store import FILE     add plants, one JSON object a line; - is stdin
       plant-store export [FILE]   print all plants, as import takes them
       plant-store --help | --version

Settings are environment variables:

${settingsHelp()}

Plants are kept in the log, or in a database if its URL is set. Without a setting for tokens, those
in the file token beside the log are accepted; if it is missing, it is created with a random token.
A database needs such a setting.

SIGTERM and SIGINT stop the program once the requests in flight are answered. SIGHUP makes it read
the token file, the certificate and its key again, but stops it if its input is a terminal.`;

/**
 * Runs the program with the arguments of the process. The process ends once nothing is left to do: all output has been
 * taken, and no file operation is pending. `process.exit` is not used: it waits for a thread that a disk or a resolver
 * blocks, and meanwhile no timer or signal can end the process.
 */
export async function main(shutdown: Shutdown): Promise<void> {
  // The program continues if the reader of a pipe closes it (EPIPE).
  process.stdout.on('error', () => undefined);
  process.stderr.on('error', () => undefined);
  process.exitCode = await runCommand(shutdown, process.argv.slice(2));
}

/** Runs a command, and resolves to its exit code. Reports why it fails, if it does. */
export async function runCommand(shutdown: Shutdown, args: readonly string[]): Promise<ExitCode> {
  try {
    // On SIGHUP, only the server reads files again. A command ends, as by default.
    if (args.length > 0) shutdown.onHangup(shutdown.request);
    return await dispatch(args, shutdown);
  } catch (error) {
    // Starts the time limit of the shutdown, unless a signal has: it may be that nobody reads the output.
    shutdown.request();
    if (error instanceof SettingsError) return failWith(EXIT.usage, ...error.problems);
    if (isAbort(error, shutdown.requested))
      return failWith(EXIT.interrupted, 'interrupted; run the same command again to complete it');
    return failWith(EXIT.failed, ...reasonOf(error).split('\n'));
  }
}

/** @throws SettingsError if there is no command with these arguments. */
async function dispatch(args: readonly string[], shutdown: Shutdown): Promise<ExitCode> {
  const [command, file, ...more] = args;
  const { requested } = shutdown;
  if (command === undefined) {
    const settings = await readServerSettings(process.env);
    return serve(settings, shutdown, () => openStore(settings, 'try again', requested));
  }
  if (file === undefined && ['--help', '-h', 'help'].includes(command)) return print(HELP);
  if (file === undefined && command === '--version') return print(VERSION);
  const hasOption = args.some((arg) => /^-./.test(arg));
  if (!hasOption && more.length === 0) {
    if (command === 'import' && file !== undefined) return importPlants(file, requested);
    if (command === 'export') return exportPlants(file, requested);
    if (command === 'verify') return withLog(file, (path) => verify(path, requested));
    if (command === 'repair') return withLog(file, (path) => repair(path, requested));
  }
  // Without the arguments, one of which may be a token.
  throw new SettingsError([
    'there is no such command, or it takes other arguments; settings are environment variables; see --help',
  ]);
}

function print(text: string): ExitCode {
  console.log(text);
  return EXIT.done;
}
