import type { HttpRequest } from './request.js';

/** The memory that a request takes, in bytes: about what was measured with Node 20 to 26. */
export const REQUEST_COST = {
  /** The objects of a request and of its response, and those of its plant in the store's queue. */
  objects: 3072,
  /**
   * A header line, in addition to its characters: its name and its value are strings both in
   * `headers` and in `rawHeaders`.
   */
  line: 128,
  /**
   * How many times a body is held: as bytes, as text, as the strings of the plant, and in the
   * response.
   */
  bodyTimes: 4,
} as const;

export function memoryForHead({ url = '', rawHeaders }: HttpRequest): number {
  return REQUEST_COST.objects + url.length + memoryForLines(rawHeaders);
}

/** The memory for header or trailer lines, in which names and values alternate. */
export function memoryForLines(lines: readonly string[] = []): number {
  let bytes = (REQUEST_COST.line * lines.length) / 2;
  for (const text of lines) bytes += text.length;
  return bytes;
}

/** The memory for a body of this many bytes. */
export function memoryForBody(bytes: number): number {
  return REQUEST_COST.bodyTimes * bytes;
}

/** A bound for the memory that all requests hold together, in bytes. */
export class Budget {
  /** The amount that is reserved now. */
  reserved = 0;

  constructor(readonly max: number) {}

  /**
   * Reserves an amount, as {@link Reservation.growBy} does. Returns `undefined` if too little is
   * left.
   */
  reserve(amount: number): Reservation | undefined {
    const reservation = new Reservation(this);
    return reservation.growBy(amount) ? reservation : undefined;
  }
}

/**
 * What one request holds of a {@link Budget}. A class, because closures would be created for each
 * request.
 */
export class Reservation {
  private held = 0;

  constructor(private readonly budget: Budget) {}

  /**
   * Reserves `amount` more. Returns `false`, and changes nothing, if too little is left. A
   * reservation is capped at the whole budget, so that any request fits while it is the only one:
   * with very small limits, its head alone may be larger than the budget.
   */
  growBy(amount: number): boolean {
    const { max, reserved } = this.budget;
    const added = Math.min(this.held + amount, max) - this.held;
    if (reserved + added > max) return false;
    this.budget.reserved += added;
    this.held += added;
    return true;
  }

  /** Gives back all but an amount, if it holds more. */
  shrinkTo(amount: number): void {
    const kept = Math.min(this.held, amount);
    this.budget.reserved -= this.held - kept;
    this.held = kept;
  }
}
