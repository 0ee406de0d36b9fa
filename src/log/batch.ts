import type { NewPlant } from '../plant.js';

/** Plants that are written together. Unless the process dies, either all of them are stored or none is. */
export interface Batch {
  /**
   * By id, in the order of their lines. Each batch has its own Map: V8 rehashes a long-lived one
   * again and again, and links each old table to the next one, so plants that were deleted would
   * stay reachable.
   */
  readonly plants: Map<bigint, NewPlant>;
  readonly stored: Promise<'created'>;
  readonly resolve: (result: 'created') => void;
  readonly reject: (reason: Error) => void;
  /** The lines of the plants, concatenated. */
  lines: string;
  /** The byte offset of each line within `lines`. */
  readonly starts: number[];
  /** The length of `lines` in UTF-8, in bytes. */
  bytes: number;
}

export function createBatch(): Batch {
  let resolve!: Batch['resolve'];
  let reject!: Batch['reject'];
  const stored = new Promise<'created'>((...settle) => {
    [resolve, reject] = settle;
  });
  return { plants: new Map(), stored, resolve, reject, lines: '', starts: [], bytes: 0 };
}
