import { isHttp2, type HttpRequest, type HttpResponse } from './request.js';

/**
 * The final response of each HTTP/1 connection that is to be closed. RFC 9112, section 9.6: no later
 * request on that connection may be processed.
 */
const finalResponses = new WeakMap<object, HttpResponse>();

/** The responses that are queued behind the final one of their connection, and never sent. */
const dropped = new WeakSet<HttpResponse>();

/**
 * Drops a response if an earlier one on the same connection is its final one. Returns whether the response
 * is dropped. To be called when the request arrives: later, nothing shows the order of two responses that
 * are both queued.
 */
export function dropIfClosing(req: HttpRequest, res: HttpResponse): boolean {
  if (isClosing(req, res)) dropped.add(res);
  return dropped.has(res);
}

export function isDropped(res: HttpResponse): boolean {
  return dropped.has(res);
}

function isClosing({ socket }: HttpRequest, res: HttpResponse): boolean {
  const final = finalResponses.get(socket);
  // An application may call the handler several times for one request, at several paths.
  if (!final || final === res) return false;
  // The application may pass on an earlier request after a later one. The response to the earlier request is
  // then the next to be sent, and the final one is still queued.
  const isEarlier = res.socket && !final.writableFinished;
  return !isEarlier;
}

/** Makes a response the final one of its connection, unless an earlier one already is. */
export function closeAfter(req: HttpRequest, res: HttpResponse): void {
  if (!isClosing(req, res)) finalResponses.set(req.socket, res);
}

/** Makes a response the final one of its connection if it says `Connection: close`. */
export function observeClose(req: HttpRequest, res: HttpResponse): void {
  if (res.shouldKeepAlive === false) closeAfter(req, res);
  // Almost no response has this header yet.
  const connection = res.getHeader('connection');
  if (connection !== undefined && /\bclose\b/i.test(connection.toString())) closeAfter(req, res);
}

/**
 * Closes the connection after a request with `Upgrade`. The parser of node:http stops behind such a
 * request. Unless the application has taken the connection over, node:http then loses the rest of what
 * it has read, and takes the next bytes that arrive for the start of a request (Node 20 to 26).
 */
export function closeAfterUpgrade(req: HttpRequest, res: HttpResponse): void {
  if (req.headers.upgrade === undefined || isHttp2(req)) return;
  if (!res.headersSent) res.setHeader('Connection', 'close');
  closeAfter(req, res);
}
