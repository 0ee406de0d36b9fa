import { nodeSystem } from '../log/files.js';
import { repairLog } from '../log/repair.js';
import { pluralize } from '../pluralize.js';
import { EXIT, type ExitCode } from './exit.js';
import { reportProgress } from './progress.js';

/**
 * The command `repair`: writes lines that hold a plant in another layout again as records, and moves other damaged
 * lines to a file beside the log.
 */
export async function repair(path: string, stop: AbortSignal): Promise<ExitCode> {
  const repaired = await repairLog(nodeSystem, path, reportProgress(path, stop));
  if (!repaired) {
    console.log(`${path}: no line is damaged; nothing was changed`);
    return EXIT.done;
  }
  const { plants, rewritten, moved, movedTo } = repaired;
  const done = [`kept ${pluralize(plants, 'plant')}`];
  if (rewritten > 0) done.push(`wrote ${pluralize(rewritten, 'line')} again`);
  if (movedTo !== undefined) done.push(`moved ${pluralize(moved, 'damaged line')} to ${movedTo}`);
  console.log(`${path}: ${done.join(', ')}`);
  if (movedTo !== undefined)
    console.log(
      'plants of moved lines that were acknowledged come back with import, from a backup',
    );
  return EXIT.done;
}
