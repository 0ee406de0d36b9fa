import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { promisify } from 'node:util';

import t from 'tap';

import { logAt } from './support.js';

/**
 * Uses a log twice, and prints what keeps the process alive while it is open, then how many descriptors the second
 * time has left.
 */
const SCRIPT = `
import { readdirSync } from 'node:fs';
import { openPlantLog, readPlantLog } from './dist/index.js';

const alive = () => process.getActiveResourcesInfo().filter((each) => /Timeout|Pipe/.test(each));

async function use() {
  const others = alive().length;
  const log = await openPlantLog(process.argv[1]);
  await log.add({ id: 7n, name: 'fern' });
  for await (const plant of readPlantLog(log.path)) console.log(plant.name);
  console.log(alive().length - others);
  await log.close();
  // The socket of the lock is closed in a later turn.
  for (let turns = 0; turns < 10; turns++) await new Promise((resolve) => setImmediate(resolve));
  return readdirSync('/proc/self/fd').length;
}
// The first time, the output becomes a pipe.
const before = await use();
console.log('again');
console.log(await use() - before);`;

const skip = existsSync('/proc/self/fd') ? false : 'needs /proc';

t.test('a log keeps no process alive, and leaves no descriptor', { skip }, async (t) => {
  const args = ['--input-type=module', '--eval', SCRIPT, logAt(t)];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  t.match(stdout, /again\nfern\n0\n0\n$/);
});
