import type { NewPlant } from '../plant.js';
import { createDeferred, type Deferred } from './deferred.js';

/** Plants that are written together. Unless the process dies, either all of them are stored or none is. */
export interface Batch {
  /**
   * By id, in the order of their lines. Each batch has its own Map: V8 rehashes a long-lived one
   * again and again, and links each old table to the next one, so plants that were deleted would
   * stay reachable.
   */
  readonly plants: Map<bigint, NewPlant>;
  readonly stored: Promise<'created'>;
  readonly resolve: Deferred<'created'>['resolve'];
  readonly reject: Deferred<'created'>['reject'];
  /** The lines of the plants, concatenated. */
  lines: string;
  /** The byte offset of each line within `lines`. */
  readonly starts: number[];
  /** The length of `lines` in UTF-8, in bytes. */
  bytes: number;
}

export function createBatch(): Batch {
  const { promise: stored, resolve, reject } = createDeferred<'created'>();
  return { plants: new Map(), stored, resolve, reject, lines: '', starts: [], bytes: 0 };
}
