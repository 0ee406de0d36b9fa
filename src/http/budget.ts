import type { Report } from '../report.js';

/** Counts the bytes that are held for all requests together. */
export interface Budget {
  /** Gives a request its share, which holds nothing yet. */
  open(): Share;
}

/** What one request holds of a {@link Budget}. */
export interface Share {
  /** Holds so many bytes, or more if it does already; says `false` where there are not so many left. */
  hold(bytes: number): boolean;
  /** Gives back what it holds but for so many bytes. */
  keep(bytes: number): void;
}

/** Makes a budget that tells when it is used up, and when half of it is free again. */
export function createBudget(maxBytes: number, report: Report): Budget {
  let taken = 0;
  let usedUp = false;

  function take(bytes: number): boolean {
    if (taken + bytes <= maxBytes) {
      taken += bytes;
      return true;
    }
    if (!usedUp) report(`overloaded: requests hold ${taken} bytes, more are refused`);
    usedUp = true;
    return false;
  }

  function give(bytes: number): void {
    taken -= bytes;
    if (!usedUp || taken > maxBytes / 2) return;
    usedUp = false;
    report('no longer overloaded');
  }

  return {
    open() {
      let held = 0;
      return {
        hold(bytes) {
          if (bytes > held && !take(bytes - held)) return false;
          held = Math.max(held, bytes);
          return true;
        },
        keep(bytes) {
          const kept = Math.min(bytes, held);
          give(held - kept);
          held = kept;
        },
      };
    },
  };
}
