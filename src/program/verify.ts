import { nodeSystem } from '../log/files.js';
import { verifyLog } from '../log/recover.js';
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
  let found = { plants: 0, bytes: 0, damagedLines: 0, tornBytes: 0 };
  try {
    for await (const { plants, end, damaged, tail, size } of verifyLog(nodeSystem, path)) {
      for (const { line, offset, reason } of damaged)
        await printLine(`line ${line}, byte ${offset}: ${reason}`);
      const damagedLines = found.damagedLines + damaged.length;
      const tornBytes = tail?.length ?? 0;
      found = { plants, bytes: end + tornBytes, damagedLines, tornBytes };
      // A server may append to the log meanwhile.
      onProgress(Math.min(end, size), size);
    }
  } catch (error) {
    // Something has been printed, so there is damage.
    if (readerGone.signal.aborted) return EXIT.failed;
    throw error;
  }
  const { plants, bytes, damagedLines, tornBytes } = found;
  const counts = [pluralize(plants, 'plant'), pluralize(bytes, 'byte')];
  console.log(`${path}: ${counts.join(', ')}, ${pluralize(damagedLines, 'damaged line')}`);
  if (tornBytes > 0)
    console.log(`after the last line, ${pluralize(tornBytes, 'byte')} of an incomplete write`);
  return damagedLines === 0 ? EXIT.done : EXIT.failed;
}
