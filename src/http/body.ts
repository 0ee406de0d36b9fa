import type { Reservation } from './budget.js';
import { failures, type Failure } from './failures.js';
import { DRAIN, memoryFor, type PlantHandlerLimits } from './limits.js';
import type { HttpRequest } from './request.js';
import { endOfTurn } from './turn.js';

const NOTHING = Buffer.alloc(0);

/**
 * Reads a body to its end, and lets the request's reservation grow with it.
 *
 * @throws Failure if the body is too large, too slow, aborted, or if there is no memory left for it.
 */
export async function readBody(
  req: HttpRequest,
  limits: PlantHandlerLimits,
  memory: Reservation,
): Promise<Buffer> {
  let body: Buffer = NOTHING;
  let length = 0;

  function append(chunk: Buffer): Failure | undefined {
    const needed = length + chunk.length;
    if (needed > limits.maxBodyBytes) return failures.tooLarge(limits.maxBodyBytes);
    if (needed > body.length) {
      // Doubling the buffer bounds the copying, and a body that trickles in is not held as a million chunks.
      const capacity = Math.min(Math.max(needed, 2 * body.length), limits.maxBodyBytes);
      if (!memory.growTo(memoryFor(capacity, limits))) return failures.overloaded;
      // Most bodies arrive in one chunk, which needs no copy.
      body = length === 0 ? chunk : Buffer.concat([body], capacity);
    }
    if (length > 0) chunk.copy(body, length);
    length = needed;
    return undefined;
  }

  const outcome = await consume(req, limits.bodyTimeoutMs, append);
  if (outcome === 'timeout') throw failures.timeout;
  if (outcome === 'aborted') throw failures.malformed;
  if (outcome !== 'end') throw outcome;
  return body.length === length ? body : body.subarray(0, length);
}

/**
 * Reads and drops the rest of a body within the bounds of {@link DRAIN}, so that a client that is still
 * sending gets to see its response. Resolves to whether the end of the body was reached.
 */
export async function drainBody(req: HttpRequest): Promise<boolean> {
  let length = 0;

  function skip(chunk: Buffer): 'too large' | undefined {
    length += chunk.length;
    return length > DRAIN.maxBytes ? 'too large' : undefined;
  }

  return (await consume(req, DRAIN.timeoutMs, skip)) === 'end';
}

/**
 * Calls `onChunk` with the chunks of a body until it returns a reason to stop. Resolves to that reason,
 * or to how the body ended.
 */
function consume<Reason>(
  req: HttpRequest,
  timeoutMs: number,
  onChunk: (chunk: Buffer) => Reason | undefined,
): Promise<Reason | 'end' | 'timeout' | 'aborted'> {
  return new Promise((resolve) => {
    let timer: NodeJS.Timeout | undefined;
    let isSettled = false;
    req.on('data', onData).on('error', onClose);
    // Most bodies arrive together with their heads, and then nothing else needs to be listened for.
    void endOfTurn().then(() => {
      if (isSettled) return;
      if (req.readableEnded) onEnd();
      else if (req.destroyed) onClose();
      else {
        timer = setTimeout(() => settle('timeout'), timeoutMs);
        // The host may have paused it.
        req.on('end', onEnd).on('close', onClose).resume();
      }
    });

    function onData(data: Buffer | string): void {
      // Chunks are strings if the host has set an encoding.
      const chunk =
        typeof data === 'string' ? Buffer.from(data, req.readableEncoding as BufferEncoding) : data;
      const reason = onChunk(chunk);
      if (reason !== undefined) settle(reason);
    }

    function onEnd(): void {
      settle(req.aborted ? 'aborted' : 'end');
    }

    function onClose(): void {
      settle('aborted');
    }

    function settle(outcome: Reason | 'end' | 'timeout' | 'aborted'): void {
      if (isSettled) return;
      isSettled = true;
      clearTimeout(timer);
      if (outcome !== 'end') req.off('data', onData);
      resolve(outcome);
    }
  });
}
