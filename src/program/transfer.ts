import { openPlantLog } from '../log/log.js';
import { readPlants } from '../log/read.js';
import type { NewPlant } from '../plant.js';
import { pluralize } from '../report.js';
import type { PlantStore } from '../store.js';
import { copyPlants, type CopyCounts, type CopyOptions } from './copy.js';
import { closeAfterFailure, EXIT, type ExitCode } from './exit.js';
import { printLine } from './output.js';
import { oncePerSecond, reportProgress } from './progress.js';
import { aborted } from './signals.js';

/** Copies the plants of a log to a database. */
export function importLog(
  path: string,
  database: PlantStore,
  stop: AbortSignal,
): Promise<ExitCode> {
  return transfer('importing', path, stop, (options) =>
    copyPlants(readPlants(path), database, options),
  );
}

/** Copies the plants of a database, in the order of their ids, to a log. */
export async function exportLog(
  path: string,
  plants: AsyncIterable<NewPlant>,
  stop: AbortSignal,
): Promise<ExitCode> {
  const log = await openPlantLog(path, { onProgress: reportProgress(path, stop) });
  const stored = log.plants()[Symbol.asyncIterator]();
  try {
    const code = await transfer('exporting', path, stop, (options) =>
      copyPlants(plants, log, { ...options, stored }),
    );
    await log.close();
    return code;
  } catch (error) {
    await closeAfterFailure(log);
    throw error;
  }
}

/** Reports the progress of a copy and prints the plants that differ. Rejects once `stop` is aborted. */
async function transfer(
  doing: string,
  path: string,
  stop: AbortSignal,
  copy: (options: CopyOptions) => Promise<CopyCounts>,
): Promise<ExitCode> {
  let counts: CopyCounts = { created: 0, unchanged: 0, different: 0 };
  const report = oncePerSecond(() => {
    const { created, unchanged, different } = counts;
    return `${doing} ${path}: ${pluralize(created + unchanged + different, 'plant')}`;
  });
  const copied = copy({
    onProgress(now) {
      // Otherwise the copy would go on until the process ends.
      stop.throwIfAborted();
      counts = now;
      report();
    },
    onDifferent: (id) => printLine(`plant ${id} differs`),
  });
  try {
    await unlessAborted(stop, copied);
    return counts.different === 0 ? EXIT.done : EXIT.failed;
  } finally {
    const { created, unchanged, different } = counts;
    console.log(
      `${path}: ${pluralize(created, 'plant')} copied, ${unchanged} unchanged, ${different} different`,
    );
  }
}

/** Settles as `work` does, or rejects with the reason of a signal once that is aborted. */
export async function unlessAborted<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  const interrupted = aborted(signal).then(() => Promise.reject(signal.reason as Error));
  return Promise.race([work, interrupted]);
}
