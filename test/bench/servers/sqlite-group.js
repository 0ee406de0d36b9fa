/**
 * node:http over node:sqlite with group commit: the plants that arrive in one iteration of the
 * event loop share a transaction. `COMMIT` blocks the loop, so all requests that arrive meanwhile
 * are read in the next iteration, and their plants are committed together after that.
 */

import { insertInto, openDatabase } from './sqlite-database.js';
import { FOLDER, listen, plantServer } from './plants.js';

const database = openDatabase(FOLDER);
const insert = insertInto(database);
let waiting = [];

function commit() {
  const batch = waiting;
  waiting = [];
  database.exec('BEGIN');
  const inserted = batch.map(({ plant }) => insert(plant));
  database.exec('COMMIT');
  for (const [index, { resolve }] of batch.entries()) resolve(inserted[index]);
}

listen(
  plantServer(
    (plant) =>
      new Promise((resolve) => {
        if (waiting.push({ plant, resolve }) === 1) setImmediate(commit);
      }),
  ),
);
