import { resolve } from 'node:path';

import type { NewPlant } from '../plant.js';
import { reportToConsole, type Report } from '../report.js';
import type { PlantStore } from '../store.js';
import { reasonOf } from '../system-error.js';
import { readPassword } from './credentials.js';
import { EXIT, fail, type ExitCode } from './exit.js';
import { main } from './main.js';
import { serve } from './serve.js';
import {
  DATABASE_SETTINGS,
  readDatabaseSettings,
  readServerSettings,
  settingsHelp,
} from './settings.js';
import { exportLog, importLog } from './transfer.js';

const HELP = `Usage: plant-store-postgres               store plants: POST /plants with a bearer token
       plant-store-postgres import FILE   copy the plants of a log to the database
       plant-store-postgres export FILE   copy the plants of the database to a log
       plant-store-postgres --help | --version

Settings are environment variables. Those of the database and a token have to be set:

${settingsHelp(DATABASE_SETTINGS)}

SIGTERM and SIGINT stop the program once the requests in flight are answered. SIGHUP makes it read
the token file again.`;

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
  plants(): AsyncIterable<NewPlant>;
}

/** Runs the program that keeps plants in a database. `load` rejects if pg is not installed. */
export function databaseProgram(load: () => Promise<OpenStore>): void {
  main(HELP, (command, file, ...more) => {
    if (command === undefined) return serveDatabase();
    if (file === undefined || more.length > 0) return undefined;
    const path = resolve(file);
    if (command === 'import') return withStore((store) => importLog(path, store));
    if (command === 'export') return withStore((store) => exportLog(path, store.plants()));
    return undefined;
  });

  async function serveDatabase(): Promise<ExitCode> {
    const faults: string[] = [];
    const settings = readServerSettings(process.env, faults);
    const options = await readOptions(faults);
    return serve(settings, faults, async () => {
      const store = await open(options);
      return { store, lines: [`database: ${store.name}`] };
    });
  }

  async function open(options: StoreOptions): Promise<DatabaseStore> {
    const openStore = await load().catch((cause: unknown) => {
      throw new Error('the package pg cannot be loaded; install it with: npm install pg', {
        cause,
      });
    });
    return openStore(options);
  }

  /** Runs a command on the configured database. */
  async function withStore(
    command: (store: DatabaseStore) => Promise<ExitCode>,
  ): Promise<ExitCode> {
    const faults: string[] = [];
    const options = await readOptions(faults);
    return faults.length > 0 ? fail(EXIT.usage, ...faults) : command(await open(options));
  }
}

async function readOptions(faults: string[]): Promise<StoreOptions> {
  const { passwordFile, ...settings } = readDatabaseSettings(process.env, faults);
  // Without the cause: its stack adds nothing to the message.
  const options = { ...settings, report: (message: string) => reportToConsole(message) };
  if (passwordFile === undefined) return options;
  const password = (): Promise<string> => readPassword(passwordFile);
  await password().catch((error: unknown) => faults.push(reasonOf(error)));
  return { ...options, password };
}
