import { STATUS_CODES, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';

import type { Failure } from '../../http/failures.js';
import { DRAIN } from '../../http/limits.js';
import { publishResponse } from '../../http/published.js';

/**
 * Sends a failure as the last response on a connection.
 *
 * - If the latest request (that of `res`) is complete, the failure follows its response.
 * - If it is incomplete, the failure is its response, after those to earlier requests.
 * - If the response to an incomplete request has begun, no failure can follow: the connection ends.
 */
export function endAfterEarlier(
  socket: Duplex,
  res: ServerResponse | undefined,
  failure: Failure,
): void {
  if (res?.req.complete) res.once('close', () => endWith(socket, failure));
  // Earlier responses are not sent yet. Once they are, node:http emits `socket`, then writes what
  // this response has buffered. The microtask runs after that.
  else if (res && !res.socket)
    res.once('socket', () => queueMicrotask(() => endAfterEarlier(socket, res, failure)));
  else if (res?.headersSent) endGently(socket);
  else endWith(socket, failure);
}

/** Writes a failure to a connection, without a response of node:http. */
function endWith(socket: Duplex, { status, error, headers, body }: Failure): void {
  if (socket.writable) publishResponse({ status, error });
  const lines = Object.entries({
    ...headers,
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    Connection: 'close',
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  endGently(socket, `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${body}`);
}

/** Ends a connection but reads on for a while: a reset would discard the response. */
function endGently(socket: Duplex, lastBytes = ''): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  socket.end(lastBytes);
  const timer = setTimeout(() => socket.destroy(), DRAIN.timeoutMs);
  socket.once('close', () => clearTimeout(timer));
}
