import { channel } from 'node:diagnostics_channel';

/**
 * Published on the channel `plant-store:commit` of `node:diagnostics_channel` after each batch of
 * plants that the log or the PostgreSQL store has tried to store together. A batch belongs to many
 * requests, so it is published in the asynchronous context in which the store was opened.
 *
 * If the database refuses a plant, its batch is published as failed, and is then stored in halves,
 * each of which is published like any other batch.
 *
 * If a subscriber throws, the plants are acknowledged nevertheless, and Node emits
 * `uncaughtException` of `process`, which ends the process unless there is a listener.
 *
 * @example
 * ```ts
 * import { subscribe } from 'node:diagnostics_channel';
 *
 * subscribe('plant-store:commit', (message) => {
 *   const { store, plants, durationMs, error } = message as CommitMessage;
 *   if (error || durationMs > 100) console.warn(`${store}: ${plants} in ${durationMs} ms`, error);
 * });
 * ```
 */
export interface CommitMessage {
  /** The `path` of the log, or the `name` of the PostgreSQL store. */
  readonly store: string;
  /** The number of new plants that were stored. */
  readonly plants: number;
  /** Only for a log: by how many bytes it grew. */
  readonly bytes?: number;
  /** How long it took, in milliseconds. */
  readonly durationMs: number;
  /** Why the batch failed, if it did. With PostgreSQL, some of its plants may have been stored. */
  readonly error?: unknown;
}

const commitChannel = channel('plant-store:commit');

/** Publishes the outcome of a batch that began at `startedAt`, a time of `performance.now`. */
export function publishCommit(startedAt: number, outcome: Omit<CommitMessage, 'durationMs'>): void {
  const durationMs = performance.now() - startedAt;
  commitChannel.publish({ ...outcome, durationMs } satisfies CommitMessage);
}
