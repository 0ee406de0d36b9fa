import { verifyLog, type Checked } from '../log/recover.js';
import { repairLog } from '../log/repair.js';
import { nodeSystem } from '../log/system.js';
import { pluralize, reportProgress } from '../report.js';
import { EXIT, printLine, type ExitCode } from './exit.js';

/**
 * The command `verify`: checks every line of a log and prints the damaged ones. Ends early, without a
 * summary, if the reader of its output has closed it.
 */
export async function verify(path: string, stop: AbortSignal): Promise<ExitCode> {
  const readerGone = new AbortController();
  process.stdout.once('error', () => readerGone.abort());
  const onProgress = reportProgress(path, AbortSignal.any([stop, readerGone.signal]));
  let last: Checked | undefined;
  let damagedLines = 0;
  try {
    for await (const part of verifyLog(nodeSystem, path, onProgress)) {
      last = part;
      for (const { line, offset, reason } of part.damaged)
        await printLine(`line ${line}, byte ${offset}: ${reason}`);
      damagedLines += part.damaged.length;
    }
  } catch (error) {
    // Something has been printed, so there is damage.
    if (readerGone.signal.aborted) return EXIT.failed;
    throw error;
  }
  const torn = last?.torn.length ?? 0;
  const bytes = (last?.end ?? 0) + torn;
  const counts = [pluralize(last?.plants ?? 0, 'plant'), pluralize(bytes, 'byte')];
  console.log(`${path}: ${counts.join(', ')}, ${pluralize(damagedLines, 'damaged line')}`);
  if (torn > 0)
    console.log(`after the last line, ${pluralize(torn, 'byte')} of an incomplete write`);
  if (last?.lacksNewline)
    console.log('the last line has no newline; it gets one when the log is opened or repaired');
  if (last?.isLog === false) console.log('no line is a record: it is not a log of plants');
  return damagedLines === 0 && last?.isLog !== false ? EXIT.done : EXIT.failed;
}

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
