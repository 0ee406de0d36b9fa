import type { IncomingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';

import { failures, type Failure } from './answer.js';

/** What the handler uses of a request: both node:http's and node:http2's have it. */
export interface HttpRequest extends Readable {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly httpVersionMajor: number;
  readonly headers: IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  /** What a body parser leaves that runs before the handler. */
  readonly rawBody?: unknown;
  readonly body?: unknown;
}

export interface BodyLimits {
  readonly maxBodyBytes: number;
  readonly bodyTimeoutMs: number;
}

/** Asks for memory: whether one request may hold so many bytes in all. */
export type Hold = (bytes: number) => boolean;

/** How much of the body of a refused request is read over before the connection is closed. */
export const DISCARD = { maxBytes: 16_777_216, timeoutMs: 5_000 } as const;

/** The length that a request declares for its body, in bytes; `NaN` where it declares none. */
export function declaredLength(headers: IncomingHttpHeaders): number {
  return Number(headers['content-length']);
}

/** Reads a body to its end. Resolves to `undefined` if the client goes away before. */
export async function readBody(
  req: HttpRequest,
  { maxBodyBytes, bodyTimeoutMs }: BodyLimits,
  hold: Hold,
): Promise<Buffer | Failure | undefined> {
  let body = Buffer.alloc(0);
  let length = 0;

  /** Doubles the room, so that a body that trickles in is not held as a million chunks. */
  function makeRoom(needed: number): boolean {
    if (needed <= body.length) return true;
    const room = Math.min(Math.max(needed, 2 * body.length), maxBodyBytes);
    if (!hold(room)) return false;
    const grown = Buffer.allocUnsafe(room);
    body.copy(grown);
    body = grown;
    return true;
  }

  const outcome = await consume(req, bodyTimeoutMs, (chunk) => {
    const needed = length + chunk.length;
    if (needed > maxBodyBytes) return failures.tooLarge(maxBodyBytes);
    if (!makeRoom(needed)) return failures.overloaded;
    length += chunk.copy(body, length);
    return undefined;
  });
  if (outcome === 'end') return body.subarray(0, length);
  if (outcome === 'timeout') return failures.timeout;
  return outcome === 'gone' ? undefined : outcome;
}

/**
 * Reads over the rest of a body, within the bounds of {@link DISCARD}, so that a client that is
 * still sending gets to see its answer. Resolves to whether the body came to its end.
 */
export async function discardBody(req: HttpRequest): Promise<boolean> {
  let length = 0;
  const outcome = await consume(req, DISCARD.timeoutMs, (chunk) => {
    length += chunk.length;
    return length > DISCARD.maxBytes ? 'too large' : undefined;
  });
  return outcome === 'end';
}

type Outcome<Result> = Result | 'end' | 'timeout' | 'gone';

/**
 * Hands on the chunks of a body until one of them gives a result, the body ends, the time is over
 * or the client is gone.
 */
function consume<Result>(
  req: HttpRequest,
  timeoutMs: number,
  onChunk: (chunk: Buffer) => Result | undefined,
): Promise<Outcome<Result>> {
  return new Promise((resolve) => {
    if (req.readableEnded) {
      resolve('end');
      return;
    }
    if (req.destroyed) {
      resolve('gone');
      return;
    }
    const timer = setTimeout(() => done('timeout'), timeoutMs);
    req.on('data', onData).on('end', onEnd).on('close', onClose).on('error', onClose);

    function onData(data: Buffer | string): void {
      // Strings come where an encoding has been set.
      const chunk =
        typeof data === 'string' ? Buffer.from(data, req.readableEncoding as BufferEncoding) : data;
      const result = onChunk(chunk);
      if (result !== undefined) done(result);
    }

    function onEnd(): void {
      done('end');
    }

    function onClose(): void {
      done('gone');
    }

    function done(outcome: Outcome<Result>): void {
      clearTimeout(timer);
      req.off('data', onData).off('end', onEnd).off('close', onClose).off('error', onClose);
      resolve(outcome);
    }
  });
}
