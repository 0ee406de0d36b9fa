import { STATUS_CODES, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';

import { responseChannel } from '../../channels.js';
import type { Failure } from '../../http/failures.js';
import { DRAIN } from '../../http/limits.js';

/**
 * Ends a connection with a failure, once its earlier responses are sent. `res` is the latest response, if
 * there is one. If the request of `res` is incomplete, the failure replaces `res`, or is not sent if `res` has begun.
 */
export function endAfterEarlier(
  socket: Duplex,
  res: ServerResponse | undefined,
  failure: Failure,
): void {
  if (res?.req.complete) res.once('close', () => endWith(socket, failure));
  // node:http emits `socket` once the responses before this one are sent, then writes the data buffered in this one:
  // the microtask runs after that.
  else if (res && !res.socket)
    res.once('socket', () => queueMicrotask(() => endAfterEarlier(socket, res, failure)));
  else if (res?.headersSent) endGently(socket);
  else endWith(socket, failure);
}

/** Writes a failure to a connection, without a response of node:http. */
function endWith(socket: Duplex, { status, error, headers, body }: Failure): void {
  if (socket.writable && responseChannel.hasSubscribers) responseChannel.publish({ status, error });
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
