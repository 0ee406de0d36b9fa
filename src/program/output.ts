import { reportToConsole } from '../report.js';

/**
 * How this program is started, for messages that name a command of it: as `node` was named, and
 * with the absolute path of the script, so that it works in any folder.
 */
export const PROGRAM = [process.argv0, process.argv[1]].join(' ');

/**
 * Prints a line. If the reader of a pipe is slower, returns a promise to wait for before the next line:
 * until the reader has taken them, lines are kept in memory.
 */
export function printLine(line: string): Promise<void> | undefined {
  if (process.stdout.write(`${line}\n`)) return undefined;
  // Not `drain`, which never comes if the reader closes the pipe.
  return new Promise((resolve) => process.stdout.write('', () => resolve()));
}

const PROGRESS_INTERVAL_MS = 1_000;

/** Returns a function that reports progress in the words of `describe`, at most once a second. */
export function oncePerSecond(): (describe: () => string) => void {
  let reportedAt = performance.now();
  return (describe) => {
    if (performance.now() - reportedAt < PROGRESS_INTERVAL_MS) return;
    reportedAt = performance.now();
    reportToConsole(describe());
  };
}

/** Returns a callback that reports, at most once a second, how much of a file has been read. */
export function reportProgress(path: string): (bytes: number, totalBytes: number) => void {
  const report = oncePerSecond();
  return (bytes, totalBytes) =>
    report(() => `reading ${path}: ${Math.floor((100 * bytes) / totalBytes)} %`);
}
