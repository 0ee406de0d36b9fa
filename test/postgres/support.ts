import { setTimeout as delay } from 'node:timers/promises';

import type { Test } from 'tap';

import type { NewPlant, PlantStore } from '../../dist/index.js';
import {
  openPostgresStore,
  type PostgresStore,
  type PostgresStoreOptions,
} from '../../dist/postgres/index.js';

export interface TestStore extends PostgresStore {
  /** The reports since the store was opened. */
  readonly reports: string[];
}

/**
 * Opens a store that is closed at the end of the test. The default time limit is a minute, because
 * a busy machine may need it. If `timeoutMs` is too short for the machine to open a store, this
 * tries again with twice the limit.
 */
export async function openStore(t: Test, options: PostgresStoreOptions): Promise<TestStore> {
  const reports: string[] = [];
  const { timeoutMs } = options;
  try {
    const store = await openPostgresStore({
      report: (message) => reports.push(message),
      ...options,
      timeoutMs: timeoutMs ?? 60_000,
    });
    t.teardown(() => store.close());
    reports.length = 0;
    return { ...store, reports };
  } catch (error) {
    if (timeoutMs === undefined || !/timeout/i.test(String(error))) throw error;
    return openStore(t, { ...options, timeoutMs: 2 * timeoutMs });
  }
}

/**
 * Adds a plant again and again until it is acknowledged. Rejects with any error but `unavailable`.
 */
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

export function plantsFrom(first: number, count: number): NewPlant[] {
  return Array.from({ length: count }, (_, n) => ({ id: BigInt(first + n), name: `plant ${n}` }));
}

/** Adds plants at once. Resolves to the refused plants, each with its error. */
export async function refusedOf(store: PlantStore, plants: readonly NewPlant[]) {
  const outcomes = await Promise.allSettled(plants.map((plant) => store.add(plant)));
  return plants.flatMap((plant, n) => {
    const outcome = outcomes[n];
    return outcome?.status === 'rejected' ? [{ plant, error: outcome.reason as unknown }] : [];
  });
}
