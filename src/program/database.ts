import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import type { PostgresStore } from '../postgres/index.js';
import { reportToConsole } from '../report.js';
import { readPassword } from './credentials.js';
import { DATABASE_SETTINGS, settingsHelp } from './environment.js';
import type { ExitCode } from './exit.js';
import { exportPlants } from './export.js';
import { importPlants } from './import.js';
import { main } from './main.js';
import { serve, type ServedStore } from './serve.js';
import {
  readDatabaseServerSettings,
  readDatabaseSettings,
  type DatabaseSettings,
} from './settings.js';
import { ofSetting } from './settings-error.js';
import type { Shutdown } from './signals.js';
import { unlessAborted } from './transfer.js';

const HELP = `Usage: plant-store-postgres               store plants: POST /plants with a bearer token
       plant-store-postgres import FILE   add plants, one JSON object a line; - is stdin
       plant-store-postgres export FILE   copy the plants of the database to a log
       plant-store-postgres --help | --version

Settings are environment variables. The URL of the database and a token have to be set:

${settingsHelp(DATABASE_SETTINGS)}`;

/** Runs the program that keeps plants in a database. */
export function databaseProgram(shutdown: Shutdown): Promise<void> {
  const logScript = fileURLToPath(new URL('../server.js', import.meta.url));
  return main(shutdown, HELP, logScript, (command, file, ...more) => {
    if (command === undefined) return serveDatabase(shutdown);
    if (file === undefined || more.length > 0) return undefined;
    const { requested } = shutdown;
    if (command === 'import')
      return withDatabase(requested, (store) => importPlants(file, store, requested));
    // As for import, - would stand for a pipe, but a log is a file.
    if (command === 'export' && file !== '-')
      return withDatabase(requested, (store) =>
        exportPlants(resolve(file), store.plants(), requested),
      );
    return undefined;
  });
}

async function serveDatabase(shutdown: Shutdown): Promise<ExitCode> {
  const settings = await readDatabaseServerSettings(process.env);
  // One more connection is for checks.
  const descriptors = settings.connections + 1;
  const opened = (): Promise<ServedStore> => openServed(settings, shutdown.requested);
  return serve(settings, shutdown, opened, descriptors);
}

async function openServed(settings: DatabaseSettings, stop: AbortSignal): Promise<ServedStore> {
  const store = await unlessAborted(stop, open(settings));
  return { store, lines: [`database: ${store.name}`], check: () => store.check() };
}

/** Runs a command on the configured database. */
async function withDatabase(
  stop: AbortSignal,
  command: (store: PostgresStore) => Promise<ExitCode>,
): Promise<ExitCode> {
  const settings = await readDatabaseSettings(process.env);
  return command(await unlessAborted(stop, open(settings)));
}

async function open(settings: DatabaseSettings): Promise<PostgresStore> {
  const { openPostgresStore } = await loadStore();
  const { url, connections, acceptDataLoss, passwordFile } = settings;
  const opened = openPostgresStore({
    ...{ url, connections, acceptDataLoss },
    ...(passwordFile && { password: () => readPassword(passwordFile) }),
    // Without the cause: its stack adds nothing to the message.
    report: (message) => reportToConsole(message),
  });
  return ofSetting('PLANT_STORE_DATABASE_URL', opened);
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
