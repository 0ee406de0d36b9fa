import { resolve } from 'node:path';

import type { PostgresStore } from '../postgres/index.js';
import { reportToConsole } from '../report.js';
import { readPassword } from './credentials.js';
import { DATABASE_SETTINGS, settingsHelp } from './environment.js';
import type { ExitCode } from './exit.js';
import { commandTyped, main } from './main.js';
import { serve } from './serve.js';
import {
  readDatabaseServerSettings,
  readDatabaseSettings,
  type DatabaseSettings,
} from './settings.js';
import { exportLog, importLog } from './transfer.js';

const HELP = `Usage: plant-store-postgres               store plants: POST /plants with a bearer token
       plant-store-postgres import FILE   copy the plants of a log to the database
       plant-store-postgres export FILE   copy the plants of the database to a log
       plant-store-postgres --help | --version

Settings are environment variables. Those of the database and a token have to be set:

${settingsHelp(DATABASE_SETTINGS)}

SIGTERM and SIGINT stop the program once the requests in flight are answered. SIGHUP makes it read
the token file, the certificate and its key again, but stops it if its input is a terminal.`;

/** Runs the program that keeps plants in a database. */
export function databaseProgram(): void {
  // The command of the program that keeps plants in a log: its file is beside that of this program.
  const logCommand = commandTyped().replace(/postgres-(?=server\.js$)|-postgres$/, '');
  main(HELP, logCommand, (command, file, ...more) => {
    if (command === undefined) return serveDatabase();
    if (file === undefined || more.length > 0) return undefined;
    const path = resolve(file);
    if (command === 'import') return withDatabase((store) => importLog(path, store));
    if (command === 'export') return withDatabase((store) => exportLog(path, store.plants()));
    return undefined;
  });
}

async function serveDatabase(): Promise<ExitCode> {
  const settings = await readDatabaseServerSettings(process.env);
  return serve(settings, async () => {
    const store = await open(settings);
    return { store, lines: [`database: ${store.name}`], check: () => store.check() };
  });
}

/** Runs a command on the configured database. */
async function withDatabase(
  command: (store: PostgresStore) => Promise<ExitCode>,
): Promise<ExitCode> {
  return command(await open(await readDatabaseSettings(process.env)));
}

async function open(settings: DatabaseSettings): Promise<PostgresStore> {
  const { openPostgresStore } = await loadStore();
  const { url, connections, acceptDataLoss, passwordFile } = settings;
  return openPostgresStore({
    ...{ url, connections, acceptDataLoss },
    ...(passwordFile && { password: () => readPassword(passwordFile) }),
    // Without the cause: its stack adds nothing to the message.
    report: (message) => reportToConsole(message),
  });
}

/** Not a static import, so that the program can say what to install: pg is an optional peer. */
async function loadStore(): Promise<typeof import('../postgres/index.js')> {
  try {
    return await import('../postgres/index.js');
  } catch (cause) {
    const message = 'the package pg cannot be loaded; install it with: npm install pg';
    throw new Error(message, { cause });
  }
}
