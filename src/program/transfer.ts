import { openPlantLog, type PlantLog } from '../log/log.js';
import { pluralize } from '../pluralize.js';
import type { CopyCounts } from './copy.js';
import type { ExitCode } from './exit.js';
import { oncePerSecond, reportProgress } from './progress.js';
import { aborted } from './signals.js';

/**
 * Reports the progress of a copy, and prints its summary when it ends, however it ends. Rejects once
 * `stop` is aborted.
 */
export async function transfer(
  doing: string,
  stop: AbortSignal,
  copy: (onProgress: (counts: CopyCounts) => void) => Promise<CopyCounts>,
  summarize: (counts: CopyCounts) => string,
): Promise<CopyCounts> {
  let counts: CopyCounts = { created: 0, unchanged: 0, different: 0 };
  const report = oncePerSecond(() => {
    const { created, unchanged, different } = counts;
    return `${doing}: ${pluralize(created + unchanged + different, 'plant')}`;
  });
  const copied = copy((now) => {
    // Otherwise the copy would go on until the process ends.
    stop.throwIfAborted();
    counts = now;
    report();
  });
  try {
    return await unlessAborted(stop, copied);
  } finally {
    console.log(summarize(counts));
  }
}

/** Opens a log for a command that writes to it, and closes it afterwards. */
export async function withOpenLog(
  path: string,
  stop: AbortSignal,
  command: (log: PlantLog) => Promise<ExitCode>,
): Promise<ExitCode> {
  const log = await openPlantLog(path, { onProgress: reportProgress(path, stop) });
  const code = await command(log);
  await log.close();
  return code;
}

/** Settles as `work` does, or rejects with the reason of a signal once that is aborted. */
export async function unlessAborted<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  const interrupted = aborted(signal).then(() => Promise.reject(signal.reason as Error));
  return Promise.race([work, interrupted]);
}
