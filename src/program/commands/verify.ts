import type { CheckedPart } from '../../log/check.js';
import { verifyLog } from '../../log/read.js';
import { nodeSystem } from '../../log/system.js';
import { pluralize } from '../../report.js';
import { EXIT, type ExitCode } from '../exit.js';
import { createReadingPrinter, printLine } from '../output.js';

/** The command `verify`: checks every line of a log and prints the damaged ones. */
export async function verify(path: string, signal: AbortSignal): Promise<ExitCode> {
  const onProgress = createReadingPrinter(path);
  let last: Partial<CheckedPart> = {};
  let [damaged, newer] = [0, 0];
  for await (const part of verifyLog(nodeSystem, path, { onProgress, signal })) {
    last = part;
    for (const { number, offset, damage = '', isOfNewerVersion } of part.damaged) {
      await printLine(`line ${number}, byte ${offset}: ${damage}`);
      if (isOfNewerVersion) newer++;
      else damaged++;
    }
  }
  // The defaults are for an empty log, which has no part.
  const { plants = 0, end = 0, torn = [], lacksNewline, isLog = true } = last;
  const counts = [pluralize(plants, 'plant'), pluralize(end + torn.length, 'byte')];
  console.log(`${path}: ${counts.join(', ')}, ${pluralize(damaged, 'damaged line')}`);
  if (newer > 0)
    console.log(
      `${pluralize(newer, 'line')} of a newer version of plant-store; repair changes nothing`,
    );
  if (torn.length > 0)
    console.log(`after the last line, ${pluralize(torn.length, 'byte')} of an incomplete write`);
  if (lacksNewline)
    console.log('the last line has no newline; it gets one when the log is opened or repaired');
  if (!isLog) console.log('no line is a record: it is not a log of plants');
  return damaged + newer === 0 && isLog ? EXIT.done : EXIT.failed;
}
