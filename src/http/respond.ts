import type { OutgoingHttpHeaders } from 'node:http';

import { responseChannel } from '../channels.js';
import type { Plant } from '../plant.js';
import { drainBody } from './body.js';
import { closeAfter, isDropped } from './connection.js';
import { failures, type Failure } from './failures.js';
import { DRAIN } from './limits.js';
import { declaredLength, isHttp2, type HttpRequest, type HttpResponse } from './request.js';

/** What travels together in a failure; in a 200, `error` is 0. */
type Answer = Pick<Failure, 'status' | 'error' | 'headers' | 'body'>;

/** Sends the 200 that says a plant is stored. */
export function sendPlant(req: HttpRequest, res: HttpResponse, { name, tag }: Plant): void {
  const body = JSON.stringify({ name, tag });
  write(req, res, { status: 200, error: 0, headers: {}, body });
  res.end();
}

/**
 * Responds with a failure to a request of which a part may still be on its way. The rest of the body is
 * drained, so that the client gets to see the response. Resolves once the response is ended.
 *
 * @throws an error if the application has changed the response so that sending throws.
 */
export async function sendFailure(
  req: HttpRequest,
  res: HttpResponse,
  failure: Failure,
): Promise<void> {
  const isFinal = !keepsConnection(req, failure);
  if (isFinal) closeAfter(req, res);
  write(req, res, failure, isFinal ? { Connection: 'close' } : {});
  // RFC 9113, section 8.1: in HTTP/2 a complete response may precede the end of the request.
  if (isHttp2(req)) res.end();
  if (await drainBody(req)) res.end();
  else res.destroy();
}

/** Writes the head and the body of a response. `res.end(body)` would make two writes, which cost more. */
function write(
  req: HttpRequest,
  res: HttpResponse,
  { status, error, headers, body }: Answer,
  moreHeaders: OutgoingHttpHeaders = {},
): void {
  if (!destroyUnlessSendable(req, res)) return;
  const isPublished = responseChannel.hasSubscribers && canBeSent(req, res);
  res.writeHead(status, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    ...headers,
    ...moreHeaders,
  });
  // Not before, as that may throw; in HTTP/2 it ends the response to a HEAD.
  if (isPublished) responseChannel.publish({ request: req, response: res, status, error });
  // With `rejectNonStandardBodyWrites`, a body in the response to a HEAD throws.
  if (req.method === 'HEAD') {
    res.flushHeaders?.();
    return;
  }
  // Otherwise node:http writes at the end of the tick, and `res.end()` before that makes another write.
  res.cork();
  res.write(body);
  res.uncork();
}

/**
 * Returns whether a response can be sent. One that the application has ended is left alone. One that it
 * has begun is destroyed, and so is the response to a request that it or the client has aborted.
 */
function destroyUnlessSendable(req: HttpRequest, res: HttpResponse): boolean {
  if (res.writableEnded || res.destroyed) return false;
  const isAborted = req.aborted || (req.destroyed && !req.readableEnded);
  if (res.headersSent || isAborted) res.destroy();
  return !res.headersSent && !isAborted;
}

/** Whether a response can reach the client: nothing follows the final one of a connection. */
function canBeSent(req: HttpRequest, res: HttpResponse): boolean {
  const { destroyed, writable } = req.socket;
  // In HTTP/2, it belongs to the stream, which for a HEAD is not writable from the beginning.
  return (isHttp2(req) ? !destroyed : writable !== false) && !isDropped(res);
}

/** Whether the connection can be used again after a failure: the end of the request must be in sight. */
function keepsConnection(req: HttpRequest, failure: Failure): boolean {
  const { headers, complete } = req;
  if (isHttp2(req)) return true;
  // RFC 9110, section 15.5.9, and RFC 9112, section 6.1.
  if (failure === failures.timeout || failure === failures.http10TransferCoding) return false;
  // After a request that is not complete, nothing on its connection has been processed yet.
  if (complete) return true;
  if (headers.expect !== undefined || headers['transfer-encoding'] !== undefined) return false;
  return !(declaredLength(req) > DRAIN.maxBytes);
}
