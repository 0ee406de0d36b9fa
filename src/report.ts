import { checkFunction } from './options.js';

/**
 * Called with a message for the operator, in one sentence, and the error behind it if there is one.
 * A message may name files and hosts; it never contains a token.
 */
export type Report = (message: string, cause?: unknown) => void;

/** The default: writes to `console.error`. */
export const reportToConsole: Report = (message, cause) => {
  console.error(`plant-store: ${message}`, ...(cause === undefined ? [] : [cause]));
};

/**
 * Returns a `Report` that never throws, even if `report` throws or rejects. It is for messages that
 * cannot repeat within seconds, such as one about an error that ends the service, so their rate is
 * not limited.
 *
 * @throws TypeError if `report` is not a function.
 */
export function guardReport(report: Report = reportToConsole): Report {
  checkFunction('report', report);
  // An async function is a Report, too; its promise may reject.
  const given: (...args: Parameters<Report>) => unknown = report;
  async function send(message: string, cause?: unknown): Promise<void> {
    try {
      await given(message, cause);
    } catch {
      // Only the message: the cause and the thrown value can be anything, and printing them may
      // throw.
      reportToConsole(message);
    }
  }
  return (message, cause) => void send(message, cause);
}

/** The largest number of reports in a period: enough to act on, too few to fill a disk. */
export const REPORT_RATE = { count: 10, periodMs: 10_000 } as const;

/**
 * As {@link guardReport}, but drops the reports beyond {@link REPORT_RATE}. The number of dropped
 * reports is reported before the first report of a later period. Each returned function has its own
 * limit: callers that report different kinds of errors do not use up each other's limit.
 *
 * @throws TypeError if `report` is not a function.
 */
export function limitRate(report?: Report): Report {
  const send = guardReport(report);
  const { count: maxCount, periodMs } = REPORT_RATE;
  let periodEnd = 0;
  let count = 0;
  return (message, cause) => {
    const now = performance.now();
    if (now >= periodEnd) {
      if (count > maxCount) send(`dropped ${pluralize(count - maxCount, 'more report')}`);
      periodEnd = now + periodMs;
      count = 0;
    }
    if (++count <= maxCount) send(message, cause);
  };
}

/** Returns a count with its noun: `1 plant`, `2 plants`. */
export function pluralize(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
