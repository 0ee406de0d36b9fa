import type { Report } from './report.js';

/** Counts the bytes that are held for all requests together. */
export interface Budget {
  /** Takes bytes, or says `false` where there are not so many left. */
  take(bytes: number): boolean;
  give(bytes: number): void;
}

/** Makes a budget that tells when it is used up, and when half of it is free again. */
export function createBudget(maxBytes: number, report: Report): Budget {
  let taken = 0;
  let usedUp = false;
  return {
    take(bytes) {
      if (taken + bytes <= maxBytes) {
        taken += bytes;
        return true;
      }
      if (!usedUp) report(`overloaded: requests hold ${taken} bytes, more are refused`);
      usedUp = true;
      return false;
    },
    give(bytes) {
      taken -= bytes;
      if (!usedUp || taken > maxBytes / 2) return;
      usedUp = false;
      report('no longer overloaded');
    },
  };
}
