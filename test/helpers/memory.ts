import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * The bytes in buffers once what is unreachable is collected, which may take several attempts: as
 * many as it takes to reach `expected`, but at most 50.
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
