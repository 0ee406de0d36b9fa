/** Shared by the servers that use node:sqlite, which Node has without a flag since 22.13. */

import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

/** A database whose transactions are on the disk when they return. */
export function openDatabase(folder) {
  const database = new DatabaseSync(join(folder, 'plants.sqlite'));
  database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL');
  database.exec(
    'CREATE TABLE IF NOT EXISTS plants (id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT) STRICT',
  );
  return database;
}

/** Returns a function that inserts a plant, and returns whether its id was new. */
export function insertInto(database) {
  const insert = database.prepare('INSERT INTO plants VALUES (?, ?, ?) ON CONFLICT DO NOTHING');
  return ({ id, name, tag }) => insert.run(id, name, tag ?? null).changes === 1;
}
