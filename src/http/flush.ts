import { clearTimeout, setTimeout } from 'node:timers';

import type { Reservation } from './budget.js';
import type { HttpRequest, HttpResponse } from './request.js';

/** By connection, the `release` of each queued response. One `close` listener calls them all. */
const releasesOn = new WeakMap<object, Set<() => void>>();

/**
 * Holds a reservation until the response is flushed, because the request and the response stay in memory
 * until then. Destroys the connection if that takes longer than `timeoutMs`; in HTTP/2, the stream.
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
  const releases = releasesOn.get(socket) ?? callOnClose(socket);
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

/**
 * Returns a set of functions to call when a connection closes. A listener for each response would take time that grows
 * with their number.
 */
function callOnClose(socket: HttpRequest['socket']): Set<() => void> {
  const releases = new Set<() => void>();
  socket.once('close', () => releases.forEach((release) => release()));
  releasesOn.set(socket, releases);
  return releases;
}
