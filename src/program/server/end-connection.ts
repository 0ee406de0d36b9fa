import { STATUS_CODES, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';

import type { Failure } from '../../http/failures.js';
import { DRAIN } from '../../http/limits.js';
import { publishResponse } from '../../http/published.js';

/**
 * Sends a failure as the last response on a connection. `res` is the response to the latest
 * request, if it is not sent yet.
 *
 * - If the latest request is complete, the failure follows its response.
 * - If it is incomplete, the failure is its response, after those to earlier requests.
 * - If the response to an incomplete request has begun, no failure can follow: the connection ends.
 */
export function endAfterEarlierResponses(
  socket: Duplex,
  res: ServerResponse | undefined,
  failure: Failure,
): void {
  if (res?.req.complete) res.once('close', () => endWith(socket, failure));
  // Earlier responses are not sent yet. Once they are, node:http emits `socket`, then writes what
  // this response has buffered. The microtask runs after that.
  else if (res && !res.socket) res.once('socket', () => queueMicrotask(endNow));
  else endNow();

  function endNow(): void {
    endWith(socket, res?.headersSent ? undefined : failure);
  }
}

/**
 * Writes a failure, if one is given, and ends a connection. Reads on for a while, because a reset
 * would discard the last response.
 */
function endWith(socket: Duplex, failure: Failure | undefined): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  socket.end(failure && publishedText(failure));
  const timer = setTimeout(() => socket.destroy(), DRAIN.timeoutMs);
  socket.once('close', () => clearTimeout(timer));
}

/** Publishes a response that node:http does not send, and returns its text. */
function publishedText({ status, error, headers, body }: Failure): string {
  publishResponse({ status, error });
  const lines = Object.entries({
    ...headers,
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    Connection: 'close',
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${body}`;
}
