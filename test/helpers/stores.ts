import { join } from 'node:path';
import { Readable } from 'node:stream';

import type { Test } from 'tap';

import { openPlantLog, type PlantLog, type PlantStore } from '../../dist/index.js';
import { folderOutside } from './command.js';

/**
 * Opens a log in a new folder. At the end of the test, the log is closed before the folder is
 * removed.
 */
export async function openNewLog(t: Test): Promise<PlantLog> {
  const log = await openPlantLog(join(folderOutside(t), 'plants.jsonl'));
  t.teardown(() => log.close());
  return log;
}

/** All items of an async iterable, such as the plants of a log. */
export function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  return Readable.from(items).toArray() as Promise<T[]>;
}

/** A store whose `add` is this function. */
export function storeOf(add: PlantStore['add']): PlantStore {
  return { add, close: () => Promise.resolve() };
}

/** A store whose plants are pending until `letGo` is called. */
export interface GatedStore extends PlantStore {
  /** Resolves once `count` plants have been added. */
  untilArrived(count: number): Promise<void>;
  /** Settles all pending plants, and from now on every plant at once. */
  letGo(): void;
}

/** Creates a store whose plants are created after `letGo`, or fail with `failure`. */
export function gatedStore(failure?: Error): GatedStore {
  let letGo = (): void => undefined;
  const gate = new Promise<void>((resolve) => (letGo = resolve));
  let plants = 0;
  let onArrival = (): void => undefined;
  return {
    async add() {
      plants++;
      onArrival();
      await gate;
      if (failure) throw failure;
      return 'created';
    },
    async close() {
      letGo();
    },
    untilArrived: (count) =>
      new Promise((resolve) => {
        onArrival = () => {
          if (plants >= count) resolve();
        };
        onArrival();
      }),
    letGo: () => letGo(),
  };
}
