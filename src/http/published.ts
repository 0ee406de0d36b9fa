import { channel } from 'node:diagnostics_channel';

import type { HttpRequest, HttpResponse } from './request.js';

/**
 * Published on the channel `plant-store:response` of `node:diagnostics_channel` when the answer to
 * a request is decided, before its first byte is written, in the asynchronous context of the
 * request. Two kinds of answer are published outside of that context: those without a `request`,
 * and the 503 for a request that is cut off at shutdown.
 *
 * There is one message for each request that is answered. There is none for a request that is
 * passed to `next`, and none for an answer that cannot be sent, because the connection is closed
 * (by the client or for lack of memory) or the application has begun the response itself. In an
 * application, a message may announce an answer that node:http drops, because an earlier response
 * on the connection carried `Connection: close`.
 *
 * If a subscriber throws, the request goes on, and Node emits `uncaughtException` of `process`,
 * which ends the process unless there is a listener.
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
   * The request, as it was passed to the handler. It is missing, like `response`, in answers to
   * malformed or late HTTP, which the program writes to the connection itself.
   */
  readonly request?: HttpRequest;
  readonly response?: HttpResponse;
  /** The status code of HTTP. */
  readonly status: number;
  /** The `error` in the body, which identifies the failure; 0 for a 200. */
  readonly error: number;
}

const responseChannel = channel('plant-store:response');

export function publishResponse(message: ResponseMessage): void {
  responseChannel.publish(message);
}
