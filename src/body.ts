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
  /** Whether all of the message has been received, read or not. */
  readonly complete: boolean;
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

const NOTHING = Buffer.alloc(0);

/** The length that a request declares for its body, in bytes; `NaN` where it declares none. */
export function declaredLength(headers: IncomingHttpHeaders): number {
  return Number(headers['content-length']);
}

/** Reads a body to its end. Resolves to `undefined` if the client goes away before. */
export function readBody(
  req: HttpRequest,
  { maxBodyBytes, bodyTimeoutMs }: BodyLimits,
  hold: Hold,
): Promise<Buffer | Failure | undefined> {
  let body: Buffer = NOTHING;
  let length = 0;

  function add(chunk: Buffer): Failure | undefined {
    const needed = length + chunk.length;
    if (needed > maxBodyBytes) return failures.tooLarge(maxBodyBytes);
    if (needed > body.length) {
      // The room doubles, so that a body that trickles in is not held as a million chunks.
      const room = Math.min(Math.max(needed, 2 * body.length), maxBodyBytes);
      if (!hold(room)) return failures.overloaded;
      // Most bodies come in one chunk, which needs no copy.
      body = length === 0 ? chunk : Buffer.concat([body], room);
    }
    if (length > 0) chunk.copy(body, length);
    length = needed;
    return undefined;
  }

  return consume<Buffer | Failure | undefined>(req, bodyTimeoutMs, add, (ending) => {
    if (ending === 'end') return body.subarray(0, length);
    return ending === 'timeout' ? failures.timeout : undefined;
  });
}

/**
 * Reads over the rest of a body, within the bounds of {@link DISCARD}, so that a client that is
 * still sending gets to see its answer. Resolves to whether the body came to its end.
 */
export function discardBody(req: HttpRequest): Promise<boolean> {
  let length = 0;

  function add(chunk: Buffer): false | undefined {
    length += chunk.length;
    return length > DISCARD.maxBytes ? false : undefined;
  }

  return consume(req, DISCARD.timeoutMs, add, (ending) => ending === 'end');
}

/**
 * Hands on the chunks of a body until one of them gives a result. If none does, the result comes
 * from how it went on: to the end of the body, the end of the time, or until the client was gone.
 */
function consume<Result>(
  req: HttpRequest,
  timeoutMs: number,
  onChunk: (chunk: Buffer) => Result | undefined,
  onEnding: (ending: 'end' | 'timeout' | 'gone') => Result,
): Promise<Result> {
  return new Promise((resolve) => {
    if (req.readableEnded || req.destroyed) {
      resolve(onEnding(req.readableEnded ? 'end' : 'gone'));
      return;
    }
    let timer: NodeJS.Timeout | undefined;
    let isDone = false;
    // A body that came along with the head has arrived by then, and needs no timer.
    queueMicrotask(() => {
      if (!isDone && !req.complete) timer = setTimeout(onTimeout, timeoutMs);
    });
    req.on('data', onData).on('end', onEnd).on('close', onClose).on('error', onClose);
    // The host may have paused it.
    req.resume();

    function onData(data: Buffer | string): void {
      // Strings come where an encoding has been set.
      const chunk =
        typeof data === 'string' ? Buffer.from(data, req.readableEncoding as BufferEncoding) : data;
      const result = onChunk(chunk);
      if (result !== undefined) done(result);
    }

    function onEnd(): void {
      done(onEnding('end'));
    }

    function onClose(): void {
      done(onEnding('gone'));
    }

    function onTimeout(): void {
      done(onEnding('timeout'));
    }

    function done(result: Result): void {
      isDone = true;
      clearTimeout(timer);
      req.off('data', onData).off('end', onEnd).off('close', onClose).off('error', onClose);
      resolve(result);
    }
  });
}
