import { openPlantLog } from '../log/log.js';
import { readPlants } from '../log/read.js';
import type { NewPlant } from '../plant.js';
import { pluralize } from '../report.js';
import type { PlantStore } from '../store.js';
import { copyPlants, type CopyCounts, type CopyOptions } from './copy.js';
import { EXIT, exitWithin, fail, type ExitCode } from './exit.js';
import { STOPPING } from './listener.js';
import { oncePerSecond, reportProgress } from './progress.js';

/** Copies the plants of a log to a database. */
export function importLog(path: string, database: PlantStore): Promise<ExitCode> {
  return transfer('importing', path, (options) => copyPlants(readPlants(path), database, options));
}

/** Copies the plants of a database, in the order of their ids, to a log. */
export async function exportLog(path: string, plants: AsyncIterable<NewPlant>): Promise<ExitCode> {
  const log = await openPlantLog(path, { onProgress: reportProgress(path) });
  const stored = log.plants()[Symbol.asyncIterator]();
  try {
    return await transfer('exporting', path, (options) =>
      copyPlants(plants, log, { ...options, stored }),
    );
  } finally {
    await log.close();
  }
}

/** Reports the progress of a copy and prints the plants that differ. Ends early on a signal. */
async function transfer(
  doing: string,
  path: string,
  copy: (options: CopyOptions) => Promise<CopyCounts>,
): Promise<ExitCode> {
  let counts: CopyCounts = { created: 0, unchanged: 0, different: 0 };
  const report = oncePerSecond(() => {
    const { created, unchanged, different } = counts;
    return `${doing} ${path}: ${pluralize(created + unchanged + different, 'plant')}`;
  });
  const copied = copy({
    onProgress(now) {
      counts = now;
      report();
    },
    onDifferent: (id) => console.log(`plant ${id} differs`),
  });
  try {
    if ((await Promise.race([copied, interruption()])) === 'interrupted')
      return fail(EXIT.interrupted, 'interrupted; run the same command again to continue');
    return counts.different === 0 ? EXIT.done : EXIT.failed;
  } finally {
    const { created, unchanged, different } = counts;
    console.log(
      `${path}: ${pluralize(created, 'plant')} copied, ${unchanged} unchanged, ${different} different`,
    );
  }
}

/**
 * Resolves on the first signal. From then on, the process has {@link STOPPING}`.totalMs` to end; the same
 * signal again ends it at once.
 */
function interruption(): Promise<'interrupted'> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'])
      process.once(signal, () => {
        exitWithin(STOPPING.totalMs);
        resolve('interrupted');
      });
  });
}
