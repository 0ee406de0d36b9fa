import { copyPlant, PlantStoreError, type NewPlant, type PlantStore } from 'plant-store';

/** A `PlantStore` has no `get`, `plants` or `poisoned`: these are methods of a log. */
export function memoryStore(): PlantStore {
  const plants = new Map<bigint, NewPlant>();
  let closed = false;
  return {
    async add(given) {
      const plant = copyPlant(given);
      if (closed) throw new PlantStoreError('unavailable', 'the store is closed');
      const stored = plants.get(plant.id);
      if (!stored) {
        plants.set(plant.id, plant);
        return 'created';
      }
      if (stored.name === plant.name && stored.tag === plant.tag) return 'unchanged';
      throw new PlantStoreError('conflict', 'the id belongs to a different plant');
    },
    close: async () => void (closed = true),
  };
}
