import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * The number of bytes in buffers after garbage collection. One collection may not free everything,
 * so it is repeated until ten in a row have freed nothing.
 */
export async function heldBytes(): Promise<number> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  let least = Infinity;
  for (let inVain = 0; inVain < 10; inVain++) {
    collect();
    const { arrayBuffers } = process.memoryUsage();
    if (arrayBuffers < least) inVain = 0;
    least = Math.min(least, arrayBuffers);
    await new Promise(setImmediate);
  }
  return least;
}
