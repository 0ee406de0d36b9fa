import { repairLog } from '../log/repair.js';
import { nodeSystem } from '../log/system.js';
import { pluralize } from '../report.js';
import { EXIT, type ExitCode } from './exit.js';
import { reportProgress } from './output.js';

/**
 * The command `repair`: rewrites damaged lines that hold a plant as records, and moves the other damaged lines to a file
 * beside the log.
 */
export async function repair(path: string, stop: AbortSignal): Promise<ExitCode> {
  const onProgress = reportProgress(path);
  const repaired = await repairLog(nodeSystem, path, { onProgress, signal: stop });
  if (!repaired) {
    console.log(`${path}: no line is damaged; nothing was changed`);
    return EXIT.done;
  }
  const { plants, rewritten, moved, torn, movedTo } = repaired;
  const done = [`kept ${pluralize(plants, 'plant')}`];
  if (rewritten > 0) done.push(`wrote ${pluralize(rewritten, 'line')} again`);
  const aside: string[] = [];
  if (moved > 0) aside.push(pluralize(moved, 'damaged line'));
  if (torn > 0) aside.push(`${pluralize(torn, 'byte')} of an incomplete write`);
  if (movedTo !== undefined) done.push(`moved ${aside.join(' and ')} to ${movedTo}`);
  console.log(`${path}: ${done.join(', ')}`);
  if (moved > 0) console.log('if a moved line held an acknowledged plant, import it from a backup');
  return EXIT.done;
}
