import type { Reservation } from './budget.js';
import { isHttp2, type HttpRequest, type HttpResponse } from './request.js';

/**
 * Holds a reservation until the response is flushed. Destroys the response if that takes longer than
 * `timeoutMs`.
 */
export function releaseWhenFlushed(
  req: HttpRequest,
  res: HttpResponse,
  reservation: Reservation,
  timeoutMs: number,
): void {
  const { socket } = req;
  const pending = socket.destroyed ? 0 : res.writableLength;
  reservation.shrinkTo(pending);
  // Most responses have been flushed by now, and need no timer.
  if (pending === 0) return;
  // A pipelined response that is still queued emits no `close` when its connection does.
  const mayBeQueued = !isHttp2(req);
  const timer = setTimeout(() => {
    release();
    res.destroy();
  }, timeoutMs);
  function release(): void {
    clearTimeout(timer);
    res.off('close', release);
    if (mayBeQueued) socket.off('close', release);
    reservation.shrinkTo(0);
  }
  res.once('close', release);
  if (mayBeQueued) socket.setMaxListeners(0).once('close', release);
}
