/** A database of lmdb-js, opened as the server opens its database. */

import { join } from 'node:path';
import * as lmdb from 'lmdb';

const FILE = 'plants.mdb';
const PLANTS_PER_TRANSACTION = 250_000;

/** Fills the database in transactions that do not wait for the disk. */
export async function fill(folder, plant, plants) {
  const database = lmdb.open({ path: join(folder, FILE), noSync: true });
  for (let first = 1; first <= plants; first += PLANTS_PER_TRANSACTION) {
    const end = Math.min(first + PLANTS_PER_TRANSACTION, plants + 1);
    database.transactionSync(() => {
      for (let id = first; id < end; id++) database.put(id, plant);
    });
  }
  await database.close();
}

export function open(folder) {
  const database = lmdb.open({ path: join(folder, FILE), overlappingSync: false });
  return {
    add: ({ id, name, tag }) => database.ifNoExists(id, () => database.put(id, { name, tag })),
    close: () => database.close(),
  };
}
