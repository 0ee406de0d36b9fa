import { nodeSystem } from '../log/files.js';
import { verifyLog, type Verified } from '../log/recover.js';
import { pluralize } from '../pluralize.js';
import { EXIT, type ExitCode } from './exit.js';
import { printLine } from './output.js';
import { reportProgress } from './progress.js';

/**
 * The command `verify`: checks every line of a log and prints the damaged ones. Ends early, without a
 * summary, if the reader of its output has closed it.
 */
export async function verify(path: string, stop: AbortSignal): Promise<ExitCode> {
  const readerGone = new AbortController();
  process.stdout.once('error', () => readerGone.abort());
  const onProgress = reportProgress(path, AbortSignal.any([stop, readerGone.signal]));
  let last: Verified | undefined;
  let damagedLines = 0;
  try {
    for await (const part of verifyLog(nodeSystem, path)) {
      last = part;
      for (const { line, offset, reason } of part.damaged)
        await printLine(`line ${line}, byte ${offset}: ${reason}`);
      damagedLines += part.damaged.length;
      // A server may append to the log meanwhile.
      onProgress(Math.min(part.end, part.size), part.size);
    }
  } catch (error) {
    // Something has been printed, so there is damage.
    if (readerGone.signal.aborted) return EXIT.failed;
    throw error;
  }
  const counts = [pluralize(last?.plants ?? 0, 'plant'), pluralize(last?.next ?? 0, 'byte')];
  console.log(`${path}: ${counts.join(', ')}, ${pluralize(damagedLines, 'damaged line')}`);
  if (last?.isTorn)
    console.log(
      `after the last line, ${pluralize(last.bytes.length, 'byte')} of an incomplete write`,
    );
  if (last?.lacksNewline)
    console.log('the last line has no newline; it gets one when the log is opened or repaired');
  if (last?.isLog === false) console.log('no line is a record: it is not a log of plants');
  return damagedLines === 0 && last?.isLog !== false ? EXIT.done : EXIT.failed;
}
