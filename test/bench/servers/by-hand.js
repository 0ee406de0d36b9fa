/**
 * A server as one would write it by hand: each plant is a line that is appended and synced before
 * the response.
 */

import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { FOLDER, listen, plantServer } from './plants.js';

const file = await open(join(FOLDER, 'plants.jsonl'), 'a');
const ids = new Set();

listen(
  plantServer(async (plant) => {
    if (ids.has(plant.id)) return false;
    ids.add(plant.id);
    await file.appendFile(`${JSON.stringify(plant)}\n`);
    await file.datasync();
    return true;
  }),
);
