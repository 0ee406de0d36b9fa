import { clearTimeout, setTimeout } from 'node:timers';

import type { Reservation } from './budget.js';
import type { HttpRequest, HttpResponse } from './request.js';

/** By connection: what to call for each response that is not flushed yet. */
const releasesBySocket = new WeakMap<object, Set<() => void>>();

/**
 * Holds a reservation until the response is flushed, because the request and the response stay in
 * memory until then. If the flush takes longer than `timeoutMs`, destroys the connection; in
 * HTTP/2, the stream.
 */
export function releaseWhenFlushed(
  req: HttpRequest,
  res: HttpResponse,
  reservation: Reservation,
  timeoutMs: number,
): void {
  const { socket } = req;
  // Most responses have been flushed by now, and need no timer.
  if (socket.destroyed || !res.writableLength) {
    reservation.shrinkTo(0);
    return;
  }
  const releases = releasesOf(socket);
  const timer = setTimeout(() => {
    socket.destroy?.();
    release();
  }, timeoutMs);
  function release(): void {
    clearTimeout(timer);
    releases.delete(release);
    reservation.shrinkTo(0);
  }
  res.once('finish', release);
  // In HTTP/1, a response that is still queued emits nothing when its connection closes.
  releases.add(release);
}

/** Returns the set of functions that are called when a connection closes. */
function releasesOf(socket: HttpRequest['socket']): Set<() => void> {
  const known = releasesBySocket.get(socket);
  if (known) return known;
  const releases = new Set<() => void>();
  // One listener serves all responses of a connection: adding and removing one for each response
  // takes time that grows with the square of their number.
  socket.once('close', () => releases.forEach((release) => release()));
  releasesBySocket.set(socket, releases);
  return releases;
}
