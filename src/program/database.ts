import { setTimeout as delay } from 'node:timers/promises';

import type { StoredPlant } from '../plant.js';
import { reportToConsole } from '../report.js';
import { reasonOf } from '../system-error.js';
import type { StoreSettings } from './settings/table.js';

/** The pause between two attempts to open a database, in milliseconds. */
const RETRY_MS = 3_000;

/**
 * Opens the database at a URL, and resolves to the store and where it is (`place`). If no server
 * can be reached, `'retry'` reports why and tries again, `'fail'` rejects. If `stop` is aborted
 * before a server is reached, rejects with the reason of `stop`, or an error caused by it.
 */
export async function openDatabase(
  url: string,
  settings: Omit<StoreSettings, 'PLANT_STORE_FILE' | 'PLANT_STORE_DATABASE_URL'>,
  ifUnreachable: 'retry' | 'fail',
  stop: AbortSignal,
) {
  const { isTransient, openPostgresStore } = await importPostgres();
  const {
    PLANT_STORE_DATABASE_PASSWORD_FILE: password,
    PLANT_STORE_DATABASE_CONNECTIONS: connections,
    ...unused
  } = settings;
  // Each setting has to have an effect: this only compiles if all are named above.
  unused satisfies Record<string, never>;
  for (;;) {
    try {
      const store = await openPostgresStore({
        url,
        connections,
        password,
        // Without the cause: the stack of a database error does not help an operator.
        report: (message) => reportToConsole(message),
      });
      return { store, place: `database: ${store.name}` };
    } catch (error) {
      stop.throwIfAborted();
      if (ifUnreachable === 'fail' || !isTransient(error)) throw error;
      reportToConsole(`${reasonOf(error)}; trying again in ${RETRY_MS / 1_000} s`);
    }
    await delay(RETRY_MS, undefined, { signal: stop });
  }
}

/**
 * Reads all plants in the database at a URL. It changes nothing there: it does not create the
 * table, for example.
 *
 * @throws PlantStoreError `unavailable` if they cannot be read, or if `stop` is aborted: its reason
 * is the `cause`.
 */
export async function* readDatabase(
  url: string,
  { PLANT_STORE_DATABASE_PASSWORD_FILE: password }: StoreSettings,
  stop: AbortSignal,
): AsyncGenerator<StoredPlant> {
  const { readPostgresPlants } = await importPostgres();
  yield* readPostgresPlants({ url, password, signal: stop });
}

/** Not a static import: pg is an optional peer, and takes time to load. */
async function importPostgres() {
  try {
    return await import('../postgres/index.js');
  } catch (cause) {
    // The package may be missing, or be installed but broken.
    const message = 'cannot load the package pg, which "npm install pg" installs';
    throw new Error(`${message}: ${reasonOf(cause)}`, { cause });
  }
}
