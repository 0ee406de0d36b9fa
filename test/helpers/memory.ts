import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * The number of bytes in buffers after garbage collection. One collection may not free everything,
 * so it is repeated until `expected` is reached, but at most 50 times.
 */
export async function heldBytes(expected: number): Promise<number> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  let least = Infinity;
  for (let attempt = 0; attempt < 50 && least > expected; attempt++) {
    collect();
    least = Math.min(least, process.memoryUsage().arrayBuffers);
    await new Promise(setImmediate);
  }
  return least;
}
