/** A promise, and what shows that it is kept. */
export interface Case {
  /** The promise, in words. */
  readonly promise: string;
  /** What it takes beside Node: programs, `root`, `loop devices`. */
  readonly needs?: readonly string[];
  /** Throws if the promise is broken; resolves to what was seen. Has an empty folder of its own. */
  readonly check: (folder: string) => Promise<string>;
}

/** Says that a promise cannot be looked at here. */
export class CannotRun extends Error {}

/** How much is tried. */
export interface Extent {
  /** How often power is cut. */
  readonly rounds: number;
  /** Whether a program is killed at every system call, or only at those that matter most. */
  readonly everyCall: boolean;
}
