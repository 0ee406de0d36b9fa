import { channel } from 'node:diagnostics_channel';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';

/**
 * Published on the channel `plant-store:response` of `node:diagnostics_channel` when the answer to a
 * request is decided, before its first byte is written, in the asynchronous context of the request. Only
 * answers without a `request`, and the 503 to one that is cut off when the program stops, are not.
 *
 * There is one message for each request that is answered. There is none for a request that is passed to
 * `next`, and none for an answer that cannot be sent: the connection is closed, by the client or for lack of
 * memory, or the application has begun the response itself. In an application, there is also one for an answer that
 * node:http never sends, because an earlier one on its connection had `Connection: close`.
 *
 * If a subscriber throws, the request goes on, and Node emits `uncaughtException` of `process`, which ends
 * the process unless there is a listener.
 *
 * @example
 * ```ts
 * import { subscribe } from 'node:diagnostics_channel';
 *
 * subscribe('plant-store:response', (message) => {
 *   const { request, status, error } = message as ResponseMessage;
 *   console.log(request?.method, request?.url, status, error);
 * });
 * ```
 */
export interface ResponseMessage {
  /**
   * The request, as it was passed to the handler. It is missing, like `response`, in answers to malformed or
   * late HTTP, which the program writes to the connection itself.
   */
  readonly request?: IncomingMessage | Http2ServerRequest;
  readonly response?: ServerResponse | Http2ServerResponse;
  /** The status code of HTTP. */
  readonly status: number;
  /** The `error` in the body, which identifies the failure; 0 for a 200. */
  readonly error: number;
}

/**
 * Published on the channel `plant-store:commit` of `node:diagnostics_channel` after each batch of plants
 * that the log or the PostgreSQL store has tried to store together. A batch belongs to many requests, so
 * it is published in the asynchronous context in which the store was opened.
 *
 * If the database refuses a plant, its batch fails and is stored in halves.
 *
 * If a subscriber throws, the plants are acknowledged nevertheless, and Node emits `uncaughtException` of
 * `process`, which ends the process unless there is a listener.
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

export const responseChannel = channel('plant-store:response');
const commitChannel = channel('plant-store:commit');

/** Publishes how a batch ended that began at `startedAt`, a time of `performance.now`. */
export function publishCommit(startedAt: number, outcome: Omit<CommitMessage, 'durationMs'>): void {
  const durationMs = performance.now() - startedAt;
  commitChannel.publish({ ...outcome, durationMs } satisfies CommitMessage);
}
