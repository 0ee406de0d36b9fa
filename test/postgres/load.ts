import type { Test } from 'tap';

import type { NewPlant, PlantStore } from '../../dist/index.js';
import { query, until } from './cluster.js';
import { addUntilStored } from './support.js';

const CLIENTS = 64;

/** Clients that add new plants all the time. */
export interface StoreLoad {
  /** Resolves once 1,000 more plants are acknowledged. */
  untilProgress(): Promise<void>;
  /** Ends the load, and checks that the database holds every plant that was acknowledged. */
  expectNothingLost(t: Test, url: string): Promise<void>;
}

export function startStoreLoad(stores: readonly PlantStore[]): StoreLoad {
  const acknowledged: NewPlant[] = [];
  let isOver = false;
  let id = 1_000n;
  const clients = Array.from({ length: CLIENTS }, async (_, n) => {
    const store = stores[n % stores.length];
    while (store && !isOver) {
      const plant = { id: id++, name: `plant of client ${n}` };
      await addUntilStored(store, plant);
      acknowledged.push(plant);
    }
  });
  return {
    async untilProgress() {
      const before = acknowledged.length;
      await until(() => acknowledged.length > before + 1_000);
    },
    async expectNothingLost(t, url) {
      isOver = true;
      await Promise.all(clients);
      const rows = await query(url, 'SELECT id::text, name FROM plants');
      const stored = new Map(rows.map(({ id, name }) => [id, name]));
      const lost = acknowledged.filter(({ id, name }) => stored.get(String(id)) !== name);
      t.strictSame(lost, [], `none of ${acknowledged.length} plants is lost`);
    },
  };
}
