import { reportToConsole } from '../report.js';

/**
 * What starts this program, for messages that tell the operator to run a command: `node` as it was
 * named, and the absolute path of the script. So the command works in any folder.
 */
export const PROGRAM = [process.argv0, process.argv[1]].join(' ');

/**
 * Prints a line. If the reader of a pipe is behind, returns a promise that resolves once the reader
 * has caught up. A caller waits for it before the next line: lines that are not read yet take
 * memory.
 */
export function printLine(line: string): Promise<void> | undefined {
  if (process.stdout.write(`${line}\n`)) return undefined;
  // Not the event `drain`, which is never emitted if the reader closes the pipe.
  return new Promise((resolve) => process.stdout.write('', () => resolve()));
}

const PROGRESS_INTERVAL_MS = 1_000;

/** Returns a function that prints the progress that `describe` returns, at most once a second. */
export function createProgressPrinter(): (describe: () => string) => void {
  let printedAt = performance.now();
  return (describe) => {
    if (performance.now() - printedAt < PROGRESS_INTERVAL_MS) return;
    printedAt = performance.now();
    reportToConsole(describe());
  };
}

/** Returns a callback that prints, at most once a second, how much of a file has been read. */
export function createReadingPrinter(path: string): (bytes: number, totalBytes: number) => void {
  const printProgress = createProgressPrinter();
  return (bytes, totalBytes) =>
    printProgress(() => `reading ${path}: ${Math.floor((100 * bytes) / totalBytes)} %`);
}
