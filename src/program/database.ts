import { setTimeout as delay } from 'node:timers/promises';

import type { StoredPlant } from '../plant.js';
import { reportToConsole } from '../report.js';
import type { PlantStore } from '../store.js';
import { reasonOf } from '../system-error.js';
import type { StoreSettings } from './settings/table.js';

/** The pause between two attempts to open a database, in milliseconds. */
const RETRY_MS = 3_000;

/**
 * Opens the database at a URL, and resolves to the store and its `place`. While no server can be reached, tries again
 * and reports why, or rejects, as `ifAway` says. Rejects with the reason of `stop`, or an error whose cause it is, if
 * that is aborted before a server is reached.
 */
export async function openDatabase(
  url: string,
  settings: StoreSettings,
  ifAway: 'try again' | 'fail',
  stop: AbortSignal,
) {
  const { isTransient, openPostgresStore } = await importPostgres();
  const { PLANT_STORE_DATABASE_PASSWORD_FILE: password } = settings;
  for (;;) {
    try {
      const store = await openPostgresStore({
        url,
        connections: settings.PLANT_STORE_DATABASE_CONNECTIONS,
        ...(password && { password }),
        // Without the cause, whose stack adds nothing.
        report: (message) => reportToConsole(message),
      });
      return { store, place: `database: ${store.name}` };
    } catch (error) {
      stop.throwIfAborted();
      if (ifAway === 'fail' || !isTransient(error)) throw error;
      reportToConsole(`${reasonOf(error)}; trying again in ${RETRY_MS / 1_000} s`);
    }
    await delay(RETRY_MS, undefined, { signal: stop });
  }
}

/**
 * Reads all plants in a database that is being opened, then closes it: its connections would keep the process alive.
 */
export async function* plantsInDatabase(
  opening: Promise<{ readonly store: PlantStore & { plants(): AsyncIterable<StoredPlant> } }>,
): AsyncGenerator<StoredPlant> {
  const { store } = await opening;
  try {
    yield* store.plants();
  } finally {
    await store.close();
  }
}

/** Not a static import: pg is an optional peer, and takes time to load. */
async function importPostgres() {
  try {
    return await import('../postgres/index.js');
  } catch (cause) {
    // It may be missing, or be installed but broken.
    const message = 'cannot load the package pg, which "npm install pg" installs';
    throw new Error(`${message}: ${reasonOf(cause)}`, { cause });
  }
}
