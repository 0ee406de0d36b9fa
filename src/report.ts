/**
 * Called with what an operator should know: a sentence and, for an error, its cause.
 *
 * @example
 * ```ts
 * const report: Report = (message, cause) => logger.warn({ err: cause }, message);
 * ```
 */
export type Report = (message: string, cause?: unknown) => void;

/** The default for reports: `console.error`. */
export const reportToConsole: Report = (message, cause) => {
  console.error(`plant-store: ${message}`, ...(cause === undefined ? [] : [cause]));
};

/** A number of things in words: `1 plant`, `2 plants`. */
export function pluralize(count: number, thing: string): string {
  return `${count} ${thing}${count === 1 ? '' : 's'}`;
}

/** The most reports in a period: enough to act on, too few to fill a disk. */
export const REPORT_RATE = { count: 10, periodMs: 10_000 };

/**
 * Limits the rate of reports. Those beyond the limit are dropped, and pluralize in the next period. Never
 * throws: a failing report must not break what it reports on.
 *
 * @throws TypeError if `report` is not a function.
 */
export function limitRate(report: Report = reportToConsole, rate = REPORT_RATE): Report {
  if (typeof report !== 'function') throw new TypeError('report: must be a function');
  let periodEnd = 0;
  let count = 0;
  function pass(message: string, cause?: unknown): void {
    try {
      report(message, cause);
    } catch (error) {
      reportToConsole(message, error);
    }
  }
  return (message, cause) => {
    const now = performance.now();
    if (now >= periodEnd) {
      if (count > rate.count) pass(`${count - rate.count} more reports were left out`);
      periodEnd = now + rate.periodMs;
      count = 0;
    }
    if (++count <= rate.count) pass(message, cause);
  };
}
