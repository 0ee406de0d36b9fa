/**
 * node:http over LMDB: lmdb-js gathers the plants that arrive together into one
 * commit. By default its promises promise no more than that others see the
 * plant, and `flushed` is what waits for the disk; without `overlappingSync`
 * they are the same, with one sync a commit in place of two.
 */

import { join } from 'node:path';
import { open } from 'lmdb';
import { FOLDER, listen, plantServer } from './plants.js';

const plants = open({ path: join(FOLDER, 'plants'), overlappingSync: false });

listen(
  plantServer(({ id, name, tag }) => plants.ifNoExists(id, () => plants.put(id, { name, tag }))),
);
