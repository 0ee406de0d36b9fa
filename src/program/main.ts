import { resolve } from 'node:path';

import { openPlantLog, type PlantLog } from '../log/log.js';
import { reportProgress, reportSentence } from '../report.js';
import { PlantStoreError } from '../store.js';
import { reasonOf } from '../system-error.js';
import { repair, verify } from './check-log.js';
import { readLogPath, readServerSettings, readStoreSettings } from './environment.js';
import {
  aborted,
  EXIT,
  failWith,
  killProcess,
  outputTaken,
  SettingsError,
  type ExitCode,
  type Shutdown,
} from './exit.js';
import { importPlants } from './import.js';
import { placeOf, serve, type ServedStore } from './serve.js';
import { settingsHelp, VERSION, type StoreSettings } from './settings.js';

const HELP = `Usage: plant-store                 store plants: POST /plants with a bearer token
       plant-store verify [FILE]   check every line of the log, and change nothing
       plant-store repair [FILE]   write damaged lines again, or move them to a file beside it
       plant-store import FILE     add plants, one JSON object a line; - is stdin
       plant-store --help | --version

Settings are environment variables:

${settingsHelp()}

Plants are kept in the log, or in a database if its URL is set. Without a token, a random one is
written to the file token beside the log.

SIGTERM and SIGINT stop the program once the requests in flight are answered. SIGHUP makes it read
the token file, the certificate and its key again, but stops it if its input is a terminal.`;

/**
 * Runs the program with the arguments of the process, then ends the process: once all output has been
 * taken, or when the time of a shutdown is up.
 */
export async function main(shutdown: Shutdown): Promise<void> {
  const { timeUp } = shutdown;
  // The program continues if the reader of a pipe closes it (EPIPE).
  process.stdout.on('error', () => undefined);
  process.stderr.on('error', () => undefined);
  const ended = runCommand(shutdown, process.argv.slice(2));
  const code = await Promise.race([ended, timeUp]);
  if (code !== undefined) await Promise.race([outputTaken(), timeUp]);
  else {
    reportSentence('the shutdown timed out; not all work was completed');
    killProcess();
  }
  process.exit(code);
}

/** Runs a command, and resolves to its exit code. Reports why it fails, if it does. */
export async function runCommand(shutdown: Shutdown, args: readonly string[]): Promise<ExitCode> {
  try {
    return await run(shutdown, args);
  } catch (error) {
    // From here on, the time of the shutdown runs. If a signal has requested it already, this has no effect.
    shutdown.request();
    return reportFailure(error, shutdown);
  }
}

async function run(shutdown: Shutdown, args: readonly string[]): Promise<ExitCode> {
  const [command, file, ...more] = args;
  const { requested } = shutdown;
  if (command === undefined) return serveStore(shutdown);
  if (file === undefined && ['--help', '-h', 'help'].includes(command)) return print(HELP);
  if (file === undefined && command === '--version') return print(VERSION);
  // Without its value, which may be a token.
  const [option] = args.find((arg) => /^-./.test(arg))?.split('=') ?? [];
  if (option !== undefined)
    throw new SettingsError([
      `${option}: no such option here; settings are environment variables, see --help`,
    ]);
  // Only the server reads anything again. A command ends, as it does by default.
  shutdown.onHangup(shutdown.request);
  if (more.length === 0) {
    if (command === 'import' && file !== undefined) return importFile(file, requested);
    if (command === 'verify') return withLog(file, (path) => verify(path, requested));
    if (command === 'repair') return withLog(file, (path) => repair(path, requested));
  }
  throw new SettingsError([`${args.join(' ')}: no such command with these arguments; see --help`]);
}

function print(text: string): ExitCode {
  console.log(text);
  return EXIT.done;
}

async function serveStore(shutdown: Shutdown): Promise<ExitCode> {
  const settings = await readServerSettings(process.env);
  return serve(settings, shutdown, () => openStore(settings, shutdown.requested));
}

async function importFile(file: string, stop: AbortSignal): Promise<ExitCode> {
  const settings = await readStoreSettings(process.env);
  async function open(): Promise<ServedStore> {
    const store = await openStore(settings, stop);
    console.log(placeOf(store));
    return store;
  }
  return importPlants(file, open, stop);
}

/** Runs a command on the given log, or else on the configured one. */
async function withLog(
  file: string | undefined,
  command: (path: string) => Promise<ExitCode>,
): Promise<ExitCode> {
  if (file !== undefined) return withRemedy(resolve(file), command(resolve(file)));
  const path = await readLogPath(process.env);
  return ofSetting('PLANT_STORE_FILE', withRemedy(path, command(path)));
}

/** Opens the configured store. */
function openStore(settings: StoreSettings, stop: AbortSignal): Promise<ServedStore> {
  const { PLANT_STORE_DATABASE_URL: url } = settings;
  if (url === undefined) return ofSetting('PLANT_STORE_FILE', openLog(settings, stop));
  const interrupted = aborted(stop).then(() => Promise.reject(stop.reason));
  return ofSetting(
    'PLANT_STORE_DATABASE_URL',
    Promise.race([openDatabase(url, settings), interrupted]),
  );
}

function openLog({ PLANT_STORE_FILE: file }: StoreSettings, stop: AbortSignal): Promise<PlantLog> {
  return withRemedy(file, openPlantLog(file, { onProgress: reportProgress(file, stop) }));
}

/** Not a static import: pg is an optional peer, and takes time to load. */
async function openDatabase(url: string, settings: StoreSettings) {
  const { openPostgresStore } = await import('../postgres/index.js').catch((cause: unknown) => {
    const message = 'the package pg cannot be loaded; install it with: npm install pg';
    throw new Error(message, { cause });
  });
  const { PLANT_STORE_DATABASE_PASSWORD_FILE: password } = settings;
  return openPostgresStore({
    url,
    connections: settings.PLANT_STORE_DATABASE_CONNECTIONS,
    acceptDataLoss: settings.PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS,
    ...(password && { password }),
    report: reportSentence,
  });
}

/** Adds to the error of a damaged log what an operator can do about it. */
async function withRemedy<Result>(path: string, result: Promise<Result>): Promise<Result> {
  try {
    return await result;
  } catch (cause) {
    if (!(cause instanceof PlantStoreError && cause.code === 'damaged')) throw cause;
    const remedy = `the log was not changed: run "plant-store verify ${path}" to list its damaged lines, then "plant-store repair ${path}" to repair them`;
    throw new Error(`${cause.message}\n${remedy}`, { cause });
  }
}

/** Names a setting in the message if the file or the database that it names cannot be used. */
async function ofSetting<Result>(name: string, result: Promise<Result>): Promise<Result> {
  try {
    return await result;
  } catch (cause) {
    if (!(cause instanceof PlantStoreError && cause.code === 'unavailable')) throw cause;
    throw new Error(`${name}: ${cause.message}`, { cause });
  }
}

function reportFailure(error: unknown, { requested }: Shutdown): ExitCode {
  if (error instanceof SettingsError) return failWith(EXIT.usage, ...error.faults);
  if (requested.aborted && isCausedBy(error, requested.reason))
    return failWith(EXIT.interrupted, 'interrupted; run the same command again to complete it');
  return failWith(EXIT.failed, ...reasonOf(error).split('\n'));
}

function isCausedBy(error: unknown, cause: unknown): boolean {
  return error === cause || (error instanceof Error && isCausedBy(error.cause, cause));
}
