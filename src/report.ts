/**
 * Called with a message for the operator, in one sentence, and the error behind it if there is one.
 * A message may name files and hosts; it never contains a token.
 */
export type Report = (message: string, cause?: unknown) => void;

/** The default: writes to `console.error`. */
export const reportToConsole: Report = (message, cause) => {
  console.error(`plant-store: ${message}`, ...(cause === undefined ? [] : [cause]));
};

/** The largest number of reports in a period: enough to act on, too few to fill a disk. */
export const REPORT_RATE = { count: 10, periodMs: 10_000 };

/**
 * Limits the rate of reports. Those beyond the limit are dropped, and their number is reported before the
 * first report of a later period. The returned function never throws, even if `report` throws or rejects.
 *
 * @throws TypeError if `report` is not a function.
 */
export function limitRate(report: Report = reportToConsole, rate = REPORT_RATE): Report {
  if (typeof report !== 'function') throw new TypeError('report: must be a function');
  let periodEnd = 0;
  let count = 0;
  // An async function is a Report, too; its promise may reject.
  const given: (...args: Parameters<Report>) => unknown = report;
  async function send(message: string, cause?: unknown): Promise<void> {
    try {
      await given(message, cause);
    } catch {
      // Without the cause and what was thrown, which may be anything: printing it may throw again.
      reportToConsole(message);
    }
  }
  return (message, cause) => {
    const now = performance.now();
    if (now >= periodEnd) {
      if (count > rate.count) void send(`dropped ${pluralize(count - rate.count, 'more report')}`);
      periodEnd = now + rate.periodMs;
      count = 0;
    }
    if (++count <= rate.count) void send(message, cause);
  };
}

/** Returns a count with its noun: `1 plant`, `2 plants`. */
export function pluralize(count: number, thing: string): string {
  return `${count} ${thing}${count === 1 ? '' : 's'}`;
}
