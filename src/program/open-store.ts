import { resolve } from 'node:path';

import { openPlantLog, type PlantLog } from '../log/log.js';
import type { StoredPlant } from '../plant.js';
import { PlantStoreError, type PlantStore } from '../store.js';
import { openDatabase } from './database.js';
import { createReadingPrinter, PROGRAM } from './output.js';
import { readLogPath } from './settings/read.js';
import type { StoreSettings } from './settings/table.js';

/** The configured store, once it is open. */
export interface OpenedStore {
  readonly store: PlantStore & { check(): Promise<void>; plants(): AsyncIterable<StoredPlant> };
  /** Where the store keeps plants: `log: /srv/plants.jsonl`. */
  readonly place: string;
  /** The log, if the store is one. */
  readonly log?: PlantLog;
}

/**
 * Opens the configured store. If it is a database that cannot be reached, `'retry'` tries again
 * until `stop` is aborted, `'fail'` rejects.
 */
export async function openStore(
  settings: StoreSettings,
  ifUnreachable: 'retry' | 'fail',
  stop: AbortSignal,
): Promise<OpenedStore> {
  const { PLANT_STORE_FILE: file, PLANT_STORE_DATABASE_URL: url, ...others } = settings;
  if (url !== undefined)
    return namingSetting(
      'PLANT_STORE_DATABASE_URL',
      openDatabase(url, others, ifUnreachable, stop),
    );
  const opening = openPlantLog(file, { onProgress: createReadingPrinter(file), signal: stop });
  const log = await namingSetting('PLANT_STORE_FILE', withRemedy(file, opening));
  return { store: log, place: `log: ${log.path}`, log };
}

/** Runs a command on the log at `file`, or, if no file is given, on the configured log. */
export async function withLog<Result>(
  file: string | undefined,
  command: (path: string) => Promise<Result>,
): Promise<Result> {
  if (file !== undefined) return withRemedy(resolve(file), command(resolve(file)));
  const path = await readLogPath(process.env);
  return namingSetting('PLANT_STORE_FILE', withRemedy(path, command(path)));
}

/** Puts the name of the setting to change before the message of a store that cannot be used. */
export async function namingSetting<Result>(
  name: string,
  result: Promise<Result>,
): Promise<Result> {
  try {
    return await result;
  } catch (cause) {
    if (!(cause instanceof PlantStoreError && cause.code === 'unavailable')) throw cause;
    throw new Error(`${name}: ${cause.message}`, { cause });
  }
}

/** Adds what an operator can do to the message about a damaged log. */
async function withRemedy<Result>(path: string, result: Promise<Result>): Promise<Result> {
  try {
    return await result;
  } catch (cause) {
    if (!(cause instanceof PlantStoreError && cause.code === 'damaged')) throw cause;
    const remedy =
      `the log was not changed: run "${PROGRAM} verify ${path}" to list its damaged lines, ` +
      `then "${PROGRAM} repair ${path}" to repair them`;
    throw new Error(`${cause.message}\n${remedy}`, { cause });
  }
}
