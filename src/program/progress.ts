import { reportToConsole } from '../report.js';

const INTERVAL_MS = 1_000;

/** Returns a progress callback that reports at most once a second, in the words of `describe`. */
export function oncePerSecond<T extends unknown[]>(
  describe: (...progress: T) => string,
): (...progress: T) => void {
  let reportedAt = performance.now();
  return (...progress) => {
    if (performance.now() - reportedAt < INTERVAL_MS) return;
    reportedAt = performance.now();
    reportToConsole(describe(...progress));
  };
}

/**
 * Returns a callback that reports, at most once a second, how much of a file has been read. It throws
 * once `stop` is aborted, which ends the reading.
 */
export function reportProgress(
  path: string,
  stop?: AbortSignal,
): (bytes: number, totalBytes: number) => void {
  const report = oncePerSecond(
    (bytes: number, totalBytes: number) =>
      `reading ${path}: ${Math.floor((100 * bytes) / totalBytes)} %`,
  );
  return (bytes, totalBytes) => {
    stop?.throwIfAborted();
    report(bytes, totalBytes);
  };
}
