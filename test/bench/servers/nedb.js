/** node:http over NeDB, which also appends one line per plant, but without a sync. */

import { join } from 'node:path';
import Datastore from '@seald-io/nedb';
import { FOLDER, listen, plantServer } from './plants.js';

const plants = new Datastore({ filename: join(FOLDER, 'plants.db') });
await plants.loadDatabaseAsync();

/** NeDB's unique index on `_id` makes another one unnecessary. */
async function add({ id, name, tag }) {
  try {
    await plants.insertAsync({ _id: id, name, tag });
    return true;
  } catch (error) {
    if (error.errorType === 'uniqueViolated') return false;
    throw error;
  }
}

listen(plantServer(add));
