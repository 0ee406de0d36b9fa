import { repairLog } from '../../log/repair.js';
import { nodeSystem } from '../../log/system.js';
import { pluralize } from '../../report.js';
import { EXIT, type ExitCode } from '../exit.js';
import { createReadingPrinter } from '../output.js';

/**
 * The command `repair`: rewrites damaged lines that hold a plant as records, and removes other
 * damaged lines. The old log is kept. If lines were removed, the exit code is that of a failure,
 * because they may have held acknowledged plants.
 */
export async function repair(path: string, stop: AbortSignal): Promise<ExitCode> {
  const onProgress = createReadingPrinter(path);
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
  console.log(`${keptIn} is the log as it was`);
  if (removed === 0) return EXIT.done;
  console.log('if a removed line held an acknowledged plant, import it from a backup');
  return EXIT.failed;
}
