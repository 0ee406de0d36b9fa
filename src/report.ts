/** Hears what an operator should know: one sentence and, for a fault, its cause. */
export type Report = (message: string, cause?: unknown) => void;

/** Where reports go if nobody else asks for them. @internal */
export const reportToConsole: Report = (message, cause) => {
  console.error(`plant-store: ${message}`, ...(cause === undefined ? [] : [cause]));
};

/** A number of things in words: `1 plant`, `2 plants`. @internal */
export function counted(count: number, thing: string): string {
  return `${count} ${thing}${count === 1 ? '' : 's'}`;
}

/**
 * How many reports are passed on in how long: enough to act on, too few to fill a disk.
 * @internal
 */
export const REPORT_RATE = { count: 10, periodMs: 10_000 };

/**
 * Passes so many reports on in each period; leaves out more, and says afterwards how many. Never
 * throws: a report that cannot be given must not break what it tells of.
 *
 * @throws TypeError if `report` is no function.
 * @internal
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
