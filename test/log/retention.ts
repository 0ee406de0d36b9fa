import { getHeapSpaceStatistics } from 'node:v8';

import { openPlantLog } from '../../dist/log/log.js';

/*
 * A process that stores plants in the log at argv[2], with minor garbage collections only, and
 * prints how many bytes of each plant survive them. It prints a figure for each of several parts,
 * because V8 may start a major collection on its own.
 */

const [, , path = ''] = process.argv;
const PARTS = 3;
const BATCHES = 500;
const BATCH = 20;
const BATCHES_A_COLLECTION = 20;

const log = await openPlantLog(path);
const collect = (globalThis as { gc?: (options?: { type: 'minor' }) => void }).gc;

async function store(): Promise<void> {
  for (let batch = 0; batch < BATCHES; batch++) {
    const first = BigInt(log.size);
    const ids = Array.from({ length: BATCH }, (_, n) => first + BigInt(n));
    await Promise.all(ids.map((id) => log.add({ id, name: `fern ${id}` })));
    if (batch % BATCHES_A_COLLECTION === 0) collect?.({ type: 'minor' });
  }
}

function oldSpaceBytes(): number {
  const spaces = getHeapSpaceStatistics().filter(({ space_name }) => space_name === 'old_space');
  return spaces.reduce((sum, { space_used_size }) => sum + space_used_size, 0);
}

await store();
collect?.();
const kept: number[] = [];
while (kept.length < PARTS) {
  const before = oldSpaceBytes();
  await store();
  kept.push(Math.round((oldSpaceBytes() - before) / (BATCHES * BATCH)));
}
await log.close();
console.log(JSON.stringify(kept));
