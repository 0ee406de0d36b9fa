/**
 * node:http over node:sqlite as it is usually written: each request is a transaction of its own, which is
 * on the disk when its statement returns. The statement blocks the event loop meanwhile.
 */

import { insertInto, openDatabase } from './sqlite-database.js';
import { FOLDER, listen, plantServer } from './plants.js';

const insert = insertInto(openDatabase(FOLDER));

listen(plantServer(async (plant) => insert(plant)));
