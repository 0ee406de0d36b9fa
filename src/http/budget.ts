/** A bound for the memory that all requests hold together, in bytes. */
export interface Budget {
  /** The amount that is reserved now. */
  readonly reserved: number;
  /** Reserves an amount, as {@link Reservation.growBy} does. Returns `undefined` if too little is left. */
  reserve(amount: number): Reservation | undefined;
}

/** What one request holds of a {@link Budget}. */
export interface Reservation {
  /**
   * Grows by an amount, but never beyond the whole budget, so that a request fits at least when it is alone.
   * Returns `false`, and stays as it is, if too little is left.
   */
  growBy(amount: number): boolean;
  /** Gives back all but an amount. */
  shrinkTo(amount: number): void;
}

export function createBudget(max: number): Budget {
  let reserved = 0;
  return {
    get reserved() {
      return reserved;
    },
    reserve(amount) {
      let held = 0;
      const reservation: Reservation = {
        growBy(more) {
          const added = Math.min(held + more, max) - held;
          if (reserved + added > max) return false;
          reserved += added;
          held += added;
          return true;
        },
        shrinkTo(amount) {
          reserved -= held - amount;
          held = amount;
        },
      };
      return reservation.growBy(amount) ? reservation : undefined;
    },
  };
}
