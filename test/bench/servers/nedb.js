/** node:http over NeDB: a line a plant too, appended without a sync. */

import { join } from 'node:path';
import Datastore from '@seald-io/nedb';
import { FOLDER, listen, plantServer } from './plants.js';

const plants = new Datastore({ filename: join(FOLDER, 'plants.db') });
await plants.loadDatabaseAsync();

/** `_id` is NeDB's own unique index, so the id needs no second one. */
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
