// The global is a getter, which takes time on the path of a request.
import { Buffer } from 'node:buffer';

import { membersInJson, type Plant } from '../plant.js';
import { drainBody } from './body.js';
import type { Failure } from './failures.js';
import { DRAIN } from './limits.js';
import { publishResponse } from './published.js';
import { declaredLength, isHttp2, type HttpRequest, type HttpResponse } from './request.js';

/** A response. The `error` of a 200 is 0. */
type Answer = Pick<Failure, 'status' | 'error' | 'body'> & Partial<Pick<Failure, 'headers'>>;

/** Sends the 200 that says a plant is stored. */
export function sendPlant(req: HttpRequest, res: HttpResponse, plant: Plant): void {
  const body = `{${membersInJson(plant)}}`;
  if (!canSend(req, res)) {
    destroyUnlessOver(req, res);
    return;
  }
  write(req, res, { status: 200, error: 0, body });
  res.end();
}

/**
 * Responds with a failure to a request that may not have arrived completely. The rest of the body
 * is drained, so that the client gets to see the response. Resolves once the response is ended or
 * destroyed.
 *
 * @throws an error if the application has changed the response so that sending throws.
 */
export async function sendFailure(
  req: HttpRequest,
  res: HttpResponse,
  failure: Failure,
): Promise<void> {
  if (!canSend(req, res)) {
    destroyUnlessOver(req, res);
    return;
  }
  // Not with `writeHead`: the server of the program reads it with `getHeader`.
  if (!keepsConnection(req, failure)) res.setHeader('Connection', 'close');
  write(req, res, failure);
  // RFC 9113, section 8.1: in HTTP/2, a complete response may precede the end of the request. Then
  // the second `end` does nothing, and `destroy` resets the stream, which stops the client.
  if (isHttp2(req)) res.end();
  if (await drainBody(req)) res.end();
  else res.destroy();
}

/**
 * Whether a response can be sent: it has not begun, its request was not aborted, and its connection
 * has not ended.
 */
function canSend(req: HttpRequest, res: HttpResponse): boolean {
  const isAborted = req.destroyed && !req.readableEnded;
  return !isOver(req, res) && !isAborted && !res.destroyed && !res.headersSent;
}

/**
 * Destroys a response that cannot be sent: HTTP/2 would leave the stream of an aborted request
 * open.
 */
function destroyUnlessOver(req: HttpRequest, res: HttpResponse): void {
  if (!isOver(req, res)) res.destroy();
}

/** Writes all of a response but its end, and publishes it. */
function write(
  req: HttpRequest,
  res: HttpResponse,
  { status, error, headers, body }: Answer,
): void {
  res.writeHead(status, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    ...headers,
  });
  // Not before `writeHead`, which may throw.
  publishResponse({ request: req, response: res, status, error });
  // With `rejectNonStandardBodyWrites`, writing a body in the response to a HEAD throws.
  if (req.method === 'HEAD') {
    res.flushHeaders?.();
    return;
  }
  // `uncork` sends the head and the body at once, in one `write`. Without it, node:http sends them
  // at the next tick, and needs a `writev` if `res.end()` has added an empty chunk by then. On Node
  // 20, `res.end(body)` needs a `writev`, too.
  res.cork?.();
  res.write(body);
  res.uncork?.();
}

/**
 * Whether nothing can be sent any more: the application has ended the response, or the connection
 * has ended. On a connection that has ended, node:http throws if a response that is still queued is
 * ended (Node 20-26).
 */
function isOver(req: HttpRequest, res: HttpResponse): boolean {
  if (res.writableEnded) return true;
  const { destroyed, writable } = req.socket;
  // In HTTP/2, both properties are those of the stream, and `writable` is false from the beginning
  // if the request is a HEAD. In HTTP/1, a client may have half-closed the connection, which is
  // writable until the last response is sent.
  return isHttp2(req) ? destroyed === true : writable === false;
}

/**
 * Whether the connection can be used again after a failure: only if what is still to come of the
 * request is bounded.
 */
function keepsConnection(req: HttpRequest, failure: Failure): boolean {
  const { headers, complete } = req;
  if (isHttp2(req)) return true;
  if (failure.closesConnection) return false;
  if (complete) return true;
  // It is unknown whether a body follows `Expect`, and how long a chunked body is. Closing the
  // connection loses no other request: node:http has parsed nothing after an incomplete one.
  if (headers.expect !== undefined || headers['transfer-encoding'] !== undefined) return false;
  // Without a declared length (NaN), there is no rest.
  return !(declaredLength(req) > DRAIN.maxBytes);
}
