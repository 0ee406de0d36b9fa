// Not the global one: a program that replaces it, for its tests, would keep plants waiting.
import { setTimeout } from 'node:timers';

/** The longest delay, in ms, however slow the disk. The shortest is a timer's: 1 ms. */
export const MAX_DELAY_MS = 10;

/** The share of the time of writes that may be lost to delays that only show that none pays. */
export const TRIAL_SHARE = 1 / 64;

/**
 * By how much a write is believed to take longer than the one before: a busy program learns late of
 * its end.
 */
const SLOWDOWN = 1.25;

/**
 * Delays a write until as many plants have come as have just been stored: clients often send their
 * next plant at once. Where few are connected, one write for all of them takes less time than two for
 * a half each.
 *
 * What PostgreSQL's `commit_delay` does for a time that is configured, this does as long as it pays.
 */
export interface CommitDelay {
  /**
   * Waits for so many plants, for about as long as a write takes; the last one took `writeMs`. Nothing
   * is to be waited for where more are waiting already, or where that has lost more time than it gained.
   */
  begin(stored: number, waiting: number, writeMs: number): Promise<void> | undefined;
  /** Tells that a plant has come. */
  arrived(): void;
}

export function createCommitDelay(): CommitDelay {
  let missing = 0;
  let goOn!: () => void;
  /** The time that delays have gained less what they have lost, in ms. */
  let balance = 0;
  /** How long a write takes, in ms. */
  let usualMs = Infinity;

  async function wait(plants: number): Promise<void> {
    const start = performance.now();
    missing = plants;
    await new Promise<void>((resolve) => {
      goOn = resolve;
      setTimeout(resolve, Math.min(usualMs, MAX_DELAY_MS));
    });
    // A delay for all of them has saved the second write. What else kept the program is not its loss.
    const saved = missing === 0 ? usualMs : 0;
    const lost = Math.min(performance.now() - start, MAX_DELAY_MS);
    balance = Math.min(balance + saved - lost, MAX_DELAY_MS);
  }

  return {
    begin(stored, waiting, writeMs) {
      usualMs = Math.min(writeMs, SLOWDOWN * usualMs);
      if (waiting > stored) return undefined;
      if (balance >= 0) return wait(stored);
      balance += usualMs * TRIAL_SHARE;
      return undefined;
    },
    arrived() {
      if (missing > 0 && --missing === 0) goOn();
    },
  };
}
