import { resolve } from 'node:path';

import type { NewPlant } from '../plant.js';
import { reportToConsole, type Report } from '../report.js';
import type { PlantStore } from '../store.js';
import { readPassword } from './credentials.js';
import { DATABASE_SETTINGS, settingsHelp } from './environment.js';
import type { ExitCode } from './exit.js';
import { main } from './main.js';
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
the token file, the certificate and its key again; with a terminal as its input, it stops.`;

/** Opens a store in a database. */
export type OpenStore = (options: StoreOptions) => Promise<DatabaseStore>;

export interface StoreOptions {
  readonly url: string;
  readonly password?: () => Promise<string>;
  readonly connections: number;
  readonly acceptDataLoss: boolean;
  readonly report: Report;
}

export interface DatabaseStore extends PlantStore {
  readonly name: string;
  /** Rejects if plants cannot be stored at the moment. */
  check(): Promise<void>;
  plants(): AsyncIterable<NewPlant>;
}

/** Runs the program that keeps plants in a database. `load` rejects if pg is not installed. */
export function databaseProgram(load: () => Promise<OpenStore>): void {
  main(HELP, 'plant-store', (command, file, ...more) => {
    if (command === undefined) return serveDatabase();
    if (file === undefined || more.length > 0) return undefined;
    const path = resolve(file);
    if (command === 'import') return withStore((store) => importLog(path, store));
    if (command === 'export') return withStore((store) => exportLog(path, store.plants()));
    return undefined;
  });

  async function serveDatabase(): Promise<ExitCode> {
    const settings = await readDatabaseServerSettings(process.env);
    return serve(settings, async () => {
      const store = await open(settings);
      return { store, lines: [`database: ${store.name}`], check: () => store.check() };
    });
  }

  async function open(settings: DatabaseSettings): Promise<DatabaseStore> {
    const openStore = await load().catch((cause: unknown) => {
      throw new Error('the package pg cannot be loaded; install it with: npm install pg', {
        cause,
      });
    });
    const { url, connections, acceptDataLoss, passwordFile } = settings;
    return openStore({
      ...{ url, connections, acceptDataLoss },
      ...(passwordFile && { password: () => readPassword(passwordFile) }),
      // Without the cause: its stack adds nothing to the message.
      report: (message) => reportToConsole(message),
    });
  }

  /** Runs a command on the configured database. */
  async function withStore(
    command: (store: DatabaseStore) => Promise<ExitCode>,
  ): Promise<ExitCode> {
    return command(await open(await readDatabaseSettings(process.env)));
  }
}
