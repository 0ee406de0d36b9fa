import { reportToConsole } from '../report.js';

const INTERVAL_MS = 1_000;

/** Returns a callback that reports once a second how much of a large file has been read. */
export function reportProgress(path: string): (bytes: number, totalBytes: number) => void {
  let reportedAt = performance.now();
  return (bytes, totalBytes) => {
    if (performance.now() - reportedAt < INTERVAL_MS) return;
    reportedAt = performance.now();
    reportToConsole(`reading ${path}: ${Math.floor((100 * bytes) / totalBytes)} %`);
  };
}
