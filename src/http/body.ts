import type { Reservation } from './budget.js';
import { encode } from './encoding.js';
import { Failure, failures } from './failures.js';
import { DRAIN, type PlantHandlerLimits } from './limits.js';
import { memoryForBody, memoryForLines } from './memory.js';
import { isStream, type HttpRequest } from './request.js';
import { endOfTurn } from './turn.js';

const NOTHING = Buffer.alloc(0);

/**
 * Reads a body and the trailers to their end, and lets the request's reservation grow with them.
 *
 * @throws Failure if the body is too large, too slow, aborted, or if there is no memory left for it.
 */
export async function readBody(
  req: HttpRequest,
  limits: PlantHandlerLimits,
  reservation: Reservation,
): Promise<Buffer> {
  let body: Buffer = NOTHING;
  let length = 0;

  function add(chunk: Buffer): Failure | undefined {
    const needed = length + chunk.length;
    if (needed > limits.maxBodyBytes) return failures.tooLarge(limits.maxBodyBytes);
    if (needed > body.length) {
      // Doubling the buffer bounds the copying, and a body that trickles in is not held as a million chunks.
      const capacity = Math.min(Math.max(needed, 2 * body.length), limits.maxBodyBytes);
      const more = memoryForBody(capacity, limits) - memoryForBody(body.length, limits);
      if (!reservation.growBy(more)) return failures.overloaded;
      // Most bodies arrive in one chunk, which needs no copy.
      body = length === 0 ? chunk : Buffer.concat([body], capacity);
    }
    if (length > 0) chunk.copy(body, length);
    length = needed;
    return undefined;
  }

  // Most bodies arrive together with their heads, and need no timer.
  const end = await consume(req, limits.bodyTimeoutMs, add, endOfTurn());
  // The listeners on the request would keep it while the rest is drained, for which nothing is reserved.
  if (end !== 'ended') body = NOTHING;
  if (end === 'late') throw failures.timeout;
  if (end === 'aborted') throw failures.malformed;
  if (end !== 'ended') throw end;
  if (!reservation.growBy(memoryForLines(req.rawTrailers))) throw failures.overloaded;
  return body.length === length ? body : body.subarray(0, length);
}

/**
 * Reads and drops the rest of a body within the bounds of {@link DRAIN}, so that a client that is still
 * sending gets to see its response. Resolves to whether the end of the body was reached. Unlike
 * {@link readBody}, it does not wait for the end of the turn: waiting requests would hold their heads in memory.
 */
export async function drainBody(req: HttpRequest): Promise<boolean> {
  if (!isStream(req)) return true;
  let length = 0;
  const end = await consume(req, DRAIN.timeoutMs, (chunk) => {
    length += chunk.length;
    return length > DRAIN.maxBytes ? 'excess' : undefined;
  });
  return end === 'ended';
}

/**
 * Calls `take` with each chunk of a body until it returns a reason to stop. If the body has not ended once
 * `arrived` resolves, waits for its end, at most for `timeoutMs`. Resolves to how the reading ended: for
 * example to that reason, or to the failure if a chunk cannot be encoded.
 */
async function consume<Reason>(
  req: HttpRequest,
  timeoutMs: number,
  take: (chunk: Buffer) => Reason | undefined,
  arrived?: Promise<void>,
): Promise<'ended' | 'late' | 'aborted' | Failure | Reason> {
  let stopped: 'late' | Failure | Reason | undefined;

  function onData(data: Buffer | string): void {
    // Chunks are strings if the application has set an encoding.
    const chunk = typeof data === 'string' ? encode(data, req.readableEncoding) : data;
    stopped ??= chunk instanceof Failure ? chunk : take(chunk);
  }

  // The listeners that remain belong to the request, and are collected with it.
  req.on('data', onData).on('error', ignore);
  await arrived;
  if (!stopped && !req.readableEnded && !req.destroyed) {
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      timer = setTimeout(() => {
        stopped ??= 'late';
        resolve();
      }, timeoutMs);
      for (const event of ['end', 'error', 'close']) req.on(event, () => resolve());
      req.on('data', () => {
        if (stopped) resolve();
      });
      // The application may have paused it.
      req.resume();
      // With a listener for `readable`, it does not flow.
      if (req.listenerCount('readable') > 0) readAll.call(req.on('readable', readAll));
    });
    clearTimeout(timer);
  }
  req.off('data', onData);
  if (stopped) return stopped;
  return !req.readableEnded || req.aborted ? 'aborted' : 'ended';
}

/** Reads all that has arrived. Each `read` emits `data`. */
function readAll(this: HttpRequest): void {
  while (this.read() !== null);
}

/** Without a listener, an error would end the process. */
const ignore = (): void => undefined;
