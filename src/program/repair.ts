import { nodeSystem } from '../log/files.js';
import { repairLog } from '../log/repair.js';
import { pluralize } from '../pluralize.js';
import { EXIT, type ExitCode } from './exit.js';
import { reportProgress } from './progress.js';

/** The command `repair`: moves the damaged lines of a log to a file beside it. */
export async function repair(path: string, stop: AbortSignal): Promise<ExitCode> {
  const repaired = await repairLog(nodeSystem, path, reportProgress(path, stop));
  if (!repaired) {
    console.log(`${path}: no line is damaged; nothing was changed`);
    return EXIT.done;
  }
  const { plants, damagedLines, damagedPath } = repaired;
  console.log(
    `${path}: kept ${pluralize(plants, 'plant')}, moved ${pluralize(damagedLines, 'damaged line')} to ${damagedPath}`,
  );
  return EXIT.done;
}
