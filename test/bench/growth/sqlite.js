/** A table of node:sqlite, opened as the servers open their table. */

import { insertInto, openDatabase } from '../servers/sqlite-database.js';

/** One transaction that is not logged. */
export function fill(folder, { name, tag }, plants) {
  const database = openDatabase(folder);
  database.exec('PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF');
  database
    .prepare(
      `WITH RECURSIVE ids(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < ?)
       INSERT INTO plants SELECT id, ?, ? FROM ids`,
    )
    .run(plants, name, tag);
  database.close();
}

export function open(folder) {
  const database = openDatabase(folder);
  return { add: insertInto(database), close: () => database.close() };
}
