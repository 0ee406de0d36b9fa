import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';

import { responseChannel } from '../channels.js';
import type { Failure } from '../http/failures.js';
import { DRAIN } from '../http/limits.js';

/** Responds on a connection whose request was too malformed for node:http to create a response. */
export function endWith(socket: Duplex, { status, error, headers, body }: Failure): void {
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
export function endGently(socket: Duplex, lastBytes = ''): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  socket.end(lastBytes);
  const timer = setTimeout(() => socket.destroy(), DRAIN.timeoutMs);
  socket.once('close', () => clearTimeout(timer));
}
