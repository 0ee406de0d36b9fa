/** A bound for all requests together: for the memory that they hold, or for responses not yet flushed. */
export interface Budget {
  /** Reserves an amount. Returns `undefined` if less than the amount is left. */
  reserve(amount: number): Reservation | undefined;
}

/** What one request holds of a {@link Budget}. */
export interface Reservation {
  /** Grows to an amount, if it is smaller. Returns `false`, and stays as it is, if too little is left. */
  growTo(amount: number): boolean;
  /** Shrinks to an amount, if it is larger. */
  shrinkTo(amount: number): void;
}

/** Creates a budget. `onChange` is called once it is exhausted, and once half of it is free again. */
export function createBudget(
  max: number,
  onChange: (isExhausted: boolean, reserved: number) => void = () => undefined,
): Budget {
  let reserved = 0;
  let isExhausted = false;

  function take(amount: number): boolean {
    const fits = reserved + amount <= max;
    if (fits) reserved += amount;
    else change(true);
    return fits;
  }

  function change(exhausted: boolean): void {
    if (isExhausted === exhausted) return;
    isExhausted = exhausted;
    onChange(isExhausted, reserved);
  }

  return {
    reserve(amount) {
      let held = amount;
      if (!take(amount)) return undefined;
      return {
        growTo(target) {
          if (target > held) {
            if (!take(target - held)) return false;
            held = target;
          }
          return true;
        },
        shrinkTo(target) {
          const kept = Math.min(target, held);
          reserved -= held - kept;
          held = kept;
          if (reserved <= max / 2) change(false);
        },
      };
    },
  };
}
