import { nodeSystem } from '../log/files.js';
import { verifyLog, type Verification } from '../log/verify.js';
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
  let verification: Verification;
  try {
    verification = await verifyLog(nodeSystem, path, {
      onDamage: ({ line, offset, reason }) => printLine(`line ${line}, byte ${offset}: ${reason}`),
      onProgress: reportProgress(path, AbortSignal.any([stop, readerGone.signal])),
    });
  } catch (error) {
    // Something has been printed, so there is damage.
    if (readerGone.signal.aborted) return EXIT.failed;
    throw error;
  }
  const { plants, bytes, damagedLines, tornBytes } = verification;
  const found = [pluralize(plants, 'plant'), pluralize(bytes, 'byte')];
  console.log(`${path}: ${found.join(', ')}, ${pluralize(damagedLines, 'damaged line')}`);
  if (tornBytes > 0)
    console.log(`after the last line, ${pluralize(tornBytes, 'byte')} of an incomplete write`);
  return damagedLines === 0 ? EXIT.done : EXIT.failed;
}
