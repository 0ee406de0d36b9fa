import type { OutgoingHttpHeaders } from 'node:http';

import { responseChannel } from '../channels.js';
import type { Plant } from '../plant.js';
import { drainBody } from './body.js';
import { closeAfter, isDropped } from './connection.js';
import type { Failure } from './failures.js';
import { DRAIN } from './limits.js';
import { declaredLength, isHttp2, type HttpRequest, type HttpResponse } from './request.js';

/** A response. The `error` of a 200 is 0. */
type Answer = Pick<Failure, 'status' | 'error' | 'headers' | 'body'>;

/** Sends the 200 that says a plant is stored. */
export function sendPlant(req: HttpRequest, res: HttpResponse, { name, tag }: Plant): void {
  const body = JSON.stringify({ name, tag });
  write(req, res, { status: 200, error: 0, headers: {}, body });
  res.end();
}

/**
 * Responds with a failure to a request that may not have arrived completely. The rest of the body is
 * drained, so that the client gets to see the response. Resolves once the response is ended or destroyed.
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

/** Writes the head and the body of a response in one write. `res.end(body)` would need two. */
function write(
  req: HttpRequest,
  res: HttpResponse,
  { status, error, headers, body }: Answer,
  moreHeaders: OutgoingHttpHeaders = {},
): void {
  if (!isOpen(req, res)) {
    // HTTP/2 would leave the stream of an aborted request open. What the application has ended is left alone.
    if (!res.writableEnded) res.destroy();
    return;
  }
  const isPublished = responseChannel.hasSubscribers && canBeSent(req, res);
  res.writeHead(status, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    ...headers,
    ...moreHeaders,
  });
  // Not before `writeHead`, which may throw. But whether to publish is decided before: in HTTP/2,
  // `writeHead` ends the response to a HEAD.
  if (isPublished) responseChannel.publish({ request: req, response: res, status, error });
  // With `rejectNonStandardBodyWrites`, writing a body in the response to a HEAD throws.
  if (req.method === 'HEAD') {
    res.flushHeaders?.();
    return;
  }
  // Uncorking writes at once. Otherwise node:http would write at the end of the tick, and a `res.end()`
  // before that would need a second write.
  res.cork?.();
  res.write(body);
  res.uncork?.();
}

/** Whether the application has left the response to the handler, and the request is not aborted. */
function isOpen(req: HttpRequest, res: HttpResponse): boolean {
  const isAborted = req.destroyed && !req.readableEnded;
  return !res.headersSent && !res.writableEnded && !res.destroyed && !isAborted;
}

/** Whether a response can reach the client: nothing is sent after the final one of a connection. */
function canBeSent(req: HttpRequest, res: HttpResponse): boolean {
  const { destroyed, writable } = req.socket;
  // In HTTP/2, `writable` belongs to the stream, and is false from the beginning for a HEAD.
  return (isHttp2(req) ? !destroyed : writable !== false) && !isDropped(res);
}

/** Whether the connection can be used again after a failure: the end of the request must be in sight. */
function keepsConnection(req: HttpRequest, failure: Failure): boolean {
  const { headers, complete } = req;
  if (isHttp2(req)) return true;
  if (failure.closesConnection) return false;
  // Behind an incomplete request, no other has been read, so closing the connection loses none.
  if (complete) return true;
  if (headers.expect !== undefined || headers['transfer-encoding'] !== undefined) return false;
  return !(declaredLength(req) > DRAIN.maxBytes);
}
