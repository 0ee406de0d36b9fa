import { clearTimeout, setTimeout } from 'node:timers';

import type { Reservation } from './budget.js';
import type { HttpRequest, HttpResponse } from './request.js';

/** The callbacks for the close of each connection, which has one listener for all of its queued responses. */
const pendingOn = new WeakMap<object, Set<() => void>>();

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
  const timer = setTimeout(() => {
    socket.destroy?.();
    release();
  }, timeoutMs);
  function release(): void {
    clearTimeout(timer);
    forget(socket, release);
    reservation.shrinkTo(0);
  }
  res.once('finish', release);
  // In HTTP/1, a response that is still queued emits nothing when its connection closes.
  callOnClose(socket, release);
}

function callOnClose(socket: HttpRequest['socket'], release: () => void): void {
  const pending = pendingOn.get(socket) ?? new Set();
  pendingOn.set(socket, pending.add(release));
  // Adding and removing a listener takes time that grows with the number of listeners.
  if (pending.size === 1) socket.on('close', callAll);
}

function forget(socket: HttpRequest['socket'], release: () => void): void {
  const pending = pendingOn.get(socket);
  if (pending?.delete(release) && pending.size === 0) socket.off('close', callAll);
}

function callAll(this: object): void {
  pendingOn.get(this)?.forEach((release) => release());
}
