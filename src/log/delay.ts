/** The longest delay, in ms, however slow the disk. */
export const MAX_DELAY_MS = 10;

/** How many batches at most leave at once before a delay is tried again. */
export const MAX_PAUSE = 256;

/**
 * Delays a batch until the clients whose plants have just been stored have sent their next ones. Where
 * few are connected, one write for all of them takes less time than two for a half each.
 *
 * What PostgreSQL's `commit_delay` does for a time that is configured, this does only as long as it pays.
 */
export interface CommitDelay {
  /**
   * Waits for so many plants, no longer than the last write took. Nothing is to be waited for where
   * that has not paid lately.
   */
  begin(plants: number, writeMs: number): Promise<void> | undefined;
  /** Tells that a plant has arrived. */
  arrived(): void;
}

export function createCommitDelay(): CommitDelay {
  let missing = 0;
  let goOn!: () => void;
  /** How many batches leave at once after the next delay that does not pay, and after the last one. */
  let pause = 1;
  let left = 0;

  async function wait(plants: number, writeMs: number): Promise<void> {
    const start = performance.now();
    missing = plants;
    await new Promise<void>((resolve) => {
      goOn = resolve;
      setTimeout(resolve, Math.min(writeMs, MAX_DELAY_MS));
    });
    if (missing === 0 && performance.now() - start <= writeMs) {
      pause = Math.max(pause / 2, 1);
    } else {
      left = pause;
      pause = Math.min(2 * pause, MAX_PAUSE);
    }
  }

  return {
    begin(plants, writeMs) {
      if (left === 0) return plants > 0 ? wait(plants, writeMs) : undefined;
      left--;
      return undefined;
    },
    arrived() {
      if (missing > 0 && --missing === 0) goOn();
    },
  };
}
