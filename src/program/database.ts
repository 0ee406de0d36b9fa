import { setTimeout as delay } from 'node:timers/promises';

import type { NewPlant } from '../plant.js';
import { reportSentence } from '../report.js';
import { reasonOf } from '../system-error.js';
import { namingSetting } from './settings/error.js';
import type { StoreSettings } from './settings/table.js';
import { aborted } from './signals.js';

type DatabaseSettings = StoreSettings & { readonly PLANT_STORE_DATABASE_URL: string };

/** Whether plants are kept in a database. */
export function isDatabase(settings: StoreSettings): settings is DatabaseSettings {
  return settings.PLANT_STORE_DATABASE_URL !== undefined;
}

/** Opens the configured database as a store to be served or filled. While it cannot be reached, tries again or fails. */
export async function openDatabaseStore(
  settings: DatabaseSettings,
  ifAway: 'try again' | 'fail',
  stop: AbortSignal,
) {
  const opening = ifAway === 'fail' ? open(settings, stop) : openOnceReachable(settings, stop);
  const store = await namingSetting('PLANT_STORE_DATABASE_URL', opening);
  return { store, place: `database: ${store.name}` };
}

/** Reads all plants in the configured database. */
export async function* plantsInDatabase(
  settings: DatabaseSettings,
  stop: AbortSignal,
): AsyncGenerator<NewPlant> {
  const { store } = await openDatabaseStore(settings, 'fail', stop);
  try {
    yield* store.plants();
  } finally {
    await store.close();
  }
}

/** The pause between two attempts to open a database, in milliseconds. */
export const RETRY_MS = 3_000;

/** Tries again while no server can be reached, and reports why. */
async function openOnceReachable(
  settings: DatabaseSettings,
  stop: AbortSignal,
): ReturnType<typeof open> {
  const { isTransient } = await importPostgres();
  for (;;) {
    try {
      return await open(settings, stop);
    } catch (error) {
      if (!isTransient(error)) throw error;
      reportSentence(`${reasonOf(error)}; trying again in ${RETRY_MS / 1_000} s`);
    }
    await delay(RETRY_MS, undefined, { signal: stop });
  }
}

/** Rejects with the reason of `stop` once that is aborted. */
async function open(settings: DatabaseSettings, stop: AbortSignal) {
  const { openPostgresStore } = await importPostgres();
  const { PLANT_STORE_DATABASE_PASSWORD_FILE: password } = settings;
  const opening = openPostgresStore({
    url: settings.PLANT_STORE_DATABASE_URL,
    connections: settings.PLANT_STORE_DATABASE_CONNECTIONS,
    acceptDataLoss: settings.PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS,
    ...(password && { password }),
    report: reportSentence,
  });
  const interrupted = aborted(stop).then(() => Promise.reject(stop.reason as Error));
  return Promise.race([opening, interrupted]);
}

/** Not a static import: pg is an optional peer, and takes time to load. */
async function importPostgres() {
  try {
    return await import('../postgres/index.js');
  } catch (cause) {
    const message = 'the package pg cannot be loaded; install it with: npm install pg';
    throw new Error(message, { cause });
  }
}
