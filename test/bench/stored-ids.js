/** The ids of the plants that a server has left in its folder, read after it has ended. */

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';

const RECORD = /^(\{"id":(\d+),"name":"Boston fern","tag":"indoor"),"crc32":(\d+)\}$/;

/** The ids in a log whose lines are intact. */
export async function logIds(folder) {
  const file = join(folder, 'plants.jsonl');
  const lines = (await readFile(file, 'utf8')).split('\n');
  if (lines.pop() !== '') throw new Error(`${file} does not end with a newline`);
  return lines.map((line) => {
    const [, content, id, sum] = RECORD.exec(line) ?? [];
    if (id === undefined || crc32(content) !== Number(sum)) {
      throw new Error(`${file} contains a damaged line: ${line}`);
    }
    return Number(id);
  });
}

/** The ids in lines of JSON. */
export async function lineIds(folder) {
  const lines = (await readFile(join(folder, 'plants.jsonl'), 'utf8')).trimEnd().split('\n');
  return lines.map((line) => JSON.parse(line).id);
}

// The databases are imported when they are needed: their packages are installed by then, and not
// every Node has node:sqlite.

/** The server was killed by SIGTERM, so this recovers what is only in the write-ahead log. */
export async function sqliteIds(folder) {
  const { DatabaseSync } = await import('node:sqlite');
  const database = new DatabaseSync(join(folder, 'plants.sqlite'));
  const rows = database.prepare('SELECT id FROM plants').all();
  database.close();
  return rows.map(({ id }) => id);
}

export async function lmdbIds(folder) {
  const { open } = await import('lmdb');
  const database = open({ path: join(folder, 'plants') });
  const ids = [...database.getKeys()];
  await database.close();
  return ids;
}
