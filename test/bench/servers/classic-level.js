/** node:http over LevelDB; only writes with `sync` are durable. */

import { ClassicLevel } from 'classic-level';
import { FOLDER, listen, plantServer } from './plants.js';

const plants = new ClassicLevel(FOLDER, { valueEncoding: 'json' });
await plants.open();

/** Ids between their `get` and the end of their `put`. */
const pending = new Set();

async function add({ id, name, tag }) {
  if (pending.has(id)) return false;
  pending.add(id);
  try {
    if ((await plants.get(id)) !== undefined) return false;
    await plants.put(id, { name, tag }, { sync: true });
    return true;
  } finally {
    pending.delete(id);
  }
}

listen(plantServer(add));
