/**
 * node:http over LMDB: lmdb-js commits plants that arrive together at once. By default its promises
 * resolve when a plant is visible, and `flushed` waits for the disk. Without `overlappingSync` they
 * resolve when it is durable, with one sync per commit instead of two.
 */

import { join } from 'node:path';
import { open } from 'lmdb';
import { FOLDER, listen, plantServer } from './plants.js';

const plants = open({ path: join(FOLDER, 'plants'), overlappingSync: false });

listen(
  plantServer(({ id, name, tag }) => plants.ifNoExists(id, () => plants.put(id, { name, tag }))),
);
