import { setTimeout as delay } from 'node:timers/promises';

import type { Test } from 'tap';

import type { NewPlant, PlantStore } from '../../dist/index.js';
import {
  openPostgresStore,
  type PostgresStore,
  type PostgresStoreOptions,
} from '../../dist/postgres/index.js';

export const FERN: NewPlant = { id: 7n, name: 'Boston fern', tag: 'indoor' };
export const IVY: NewPlant = { id: 8n, name: 'Ivy' };

export interface TestStore extends PostgresStore {
  /** The messages that the operator got. */
  readonly reports: string[];
}

/**
 * Opens a store that is closed at the end of the test. With a time limit for tests of timeouts, which a
 * busy machine may exceed while it opens the store, this tries again.
 */
export async function openStore(t: Test, options: PostgresStoreOptions): Promise<TestStore> {
  const reports: string[] = [];
  try {
    const store = await openPostgresStore({
      report: (message) => reports.push(message),
      ...options,
    });
    t.teardown(() => store.close());
    return { ...store, reports };
  } catch (error) {
    if (options.timeoutMs === undefined || !/timeout/i.test(String(error))) throw error;
    return openStore(t, options);
  }
}

/** Adds a plant again and again until it is acknowledged; any failure but `unavailable` is thrown. */
export async function addUntilStored(
  store: PlantStore,
  plant: NewPlant,
): Promise<'created' | 'unchanged'> {
  for (;;)
    try {
      return await store.add(plant);
    } catch (error) {
      if ((error as { code?: unknown }).code !== 'unavailable') throw error;
      await delay(5);
    }
}
