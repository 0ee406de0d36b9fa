/**
 * For each line on stdin, adds plants to a log for SECONDS and prints the durable adds per second:
 *
 *   node adds.js FILE SECONDS
 */

import { createInterface } from 'node:readline';
import { openPlantLog } from '../../../dist/index.js';

const AT_ONCE = 256;

const [path, seconds] = process.argv.slice(2);
const log = await openPlantLog(path);
let id = BigInt(log.size);
console.log(log.size);
for await (const _ of createInterface({ input: process.stdin })) console.log(await rate());
await log.close();

async function rate() {
  const startedAt = performance.now();
  const deadline = startedAt + Number(seconds) * 1000;
  let added = 0;
  const client = async () => {
    for (; performance.now() < deadline; added++)
      await log.add({ id: ++id, name: 'Boston fern', tag: 'indoor' });
  };
  await Promise.all(Array.from({ length: AT_ONCE }, client));
  return (added / (performance.now() - startedAt)) * 1000;
}
