import { repairLog } from '../../log/repair.js';
import { nodeSystem } from '../../log/system.js';
import { pluralize } from '../../report.js';
import { EXIT, type ExitCode } from '../exit.js';
import { reportProgress } from '../output.js';

/**
 * The command `repair`: rewrites damaged lines that hold a plant as records, and removes the others. A file beside the
 * log keeps all of them as they were.
 */
export async function repair(path: string, stop: AbortSignal): Promise<ExitCode> {
  const onProgress = reportProgress(path);
  const repaired = await repairLog(nodeSystem, path, { onProgress, signal: stop });
  if (!repaired) {
    console.log(`${path}: no line is damaged; nothing was changed`);
    return EXIT.done;
  }
  const { plants, rewritten, removed, torn, keptIn } = repaired;
  const done = [`kept ${pluralize(plants, 'plant')}`];
  if (rewritten > 0) done.push(`wrote ${pluralize(rewritten, 'line')} again`);
  if (removed > 0) done.push(`removed ${pluralize(removed, 'damaged line')}`);
  if (torn > 0) done.push(`removed ${pluralize(torn, 'byte')} of an incomplete write`);
  console.log(`${path}: ${done.join(', ')}`);
  if (keptIn !== undefined) console.log(`${keptIn} has what was changed or removed`);
  if (removed > 0)
    console.log('if a removed line held an acknowledged plant, import it from a backup');
  return EXIT.done;
}
