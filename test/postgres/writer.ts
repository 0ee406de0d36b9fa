/*
 * Adds random plants with few ids, and prints what happened to each as `id variant outcome`:
 *
 *     node .test/postgres/writer.js URL SECONDS SEED
 */
import type { PlantStoreError } from '../../dist/index.js';
import { openPostgresStore } from '../../dist/postgres/index.js';

const CLIENTS = 64;
const VARIANTS = 3;
/** New ids appear continuously; all writers draw from the same set. */
const IDS_PER_SECOND = 2_000;

const [, , url = '', seconds = '', seed = ''] = process.argv;
// Its lock_timeout is 12 s: with the default of 100 ms, a busy machine makes the database refuse plants.
const store = await openPostgresStore({ url, timeoutMs: 600_000 });
const start = performance.now();
const lines: string[] = [];
let random = Number(seed);

function next(limit: number): number {
  random = (random * 48_271) % 2_147_483_647;
  return random % limit;
}

async function client(): Promise<void> {
  for (;;) {
    const elapsed = (performance.now() - start) / 1_000;
    if (elapsed > Number(seconds)) return;
    const id = Math.floor(elapsed * IDS_PER_SECOND) + next(100);
    const variant = next(VARIANTS);
    const outcome = await store
      .add({ id: BigInt(id), name: `variant ${variant}` })
      .catch((error: unknown) => {
        const { code, message } = error as PlantStoreError;
        return code === 'conflict' ? code : `${code} ${message}`;
      });
    lines.push(`${id} ${variant} ${outcome}`);
  }
}

await Promise.all(Array.from({ length: CLIENTS }, client));
await store.close();
process.stdout.write(lines.join('\n'));
