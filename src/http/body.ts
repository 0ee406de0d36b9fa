import type { EventEmitter } from 'node:events';
import type { IncomingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';

import { failures, type Failure } from './failures.js';
import { atEndOfTurn } from './turn.js';

/** What the handler uses of a request: both node:http's and node:http2's have it. */
export interface HttpRequest extends Readable {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly httpVersionMajor: number;
  readonly headers: IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  /** The connection; in HTTP/2 it stands for the request's stream. */
  readonly socket: EventEmitter & { readonly destroyed: boolean; destroy(): unknown };
  /** Whether the client went away before its end; in HTTP/2 it has an end even so. */
  readonly aborted: boolean;
  /** What a body parser leaves that runs before the handler. */
  readonly rawBody?: unknown;
  readonly body?: unknown;
}

/** @internal */
export interface BodyLimits {
  readonly maxBodyBytes: number;
  readonly bodyTimeoutMs: number;
}

/** Asks for memory: whether one request may hold so many bytes of its body in all. @internal */
export type Hold = (bodyBytes: number) => boolean;

/**
 * How much of the body of a refused request is read over before the connection is closed.
 * @internal
 */
export const DISCARD = { maxBytes: 16_777_216, timeoutMs: 5_000 } as const;

const NOTHING = Buffer.alloc(0);

/**
 * The length that a request declares for its body, in bytes; `NaN` where it declares none.
 * @internal
 */
export function declaredLength(headers: IncomingHttpHeaders): number {
  return Number(headers['content-length']);
}

/**
 * Reads a body to its end and hands it to `done`, or why it is refused, or nothing if the client
 * goes away before.
 * @internal
 */
export function readBody(
  req: HttpRequest,
  { maxBodyBytes, bodyTimeoutMs }: BodyLimits,
  hold: Hold,
  done: (body: Buffer | Failure | undefined) => void,
): void {
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

  consume(req, bodyTimeoutMs, add, (ending) => {
    if (ending === 'end') done(body.length === length ? body : body.subarray(0, length));
    else if (ending === 'timeout') done(failures.timeout);
    else done(ending === 'gone' ? undefined : ending);
  });
}

/**
 * Reads over the rest of a body, within the bounds of {@link DISCARD}, so that a client that is
 * still sending gets to see its answer. Tells whether the body came to its end.
 * @internal
 */
export function discardBody(req: HttpRequest, done: (isWhole: boolean) => void): void {
  let length = 0;

  function add(chunk: Buffer): 'enough' | undefined {
    length += chunk.length;
    return length > DISCARD.maxBytes ? 'enough' : undefined;
  }

  consume(req, DISCARD.timeoutMs, add, (ending) => done(ending === 'end'));
}

type Ending<Reason> = Reason | 'end' | 'timeout' | 'gone';

/**
 * Hands on the chunks of a body until one of them gives a reason to stop. Tells that reason, or how
 * it went on: to the end of the body, the end of the time, or until the client was gone.
 */
function consume<Reason>(
  req: HttpRequest,
  timeoutMs: number,
  onChunk: (chunk: Buffer) => Reason | undefined,
  done: (ending: Ending<Reason>) => void,
): void {
  let timer: NodeJS.Timeout | undefined;
  let isDone = false;
  req.on('data', onData).on('error', onClose);
  // Most bodies come along with their heads, and then there is nothing more to listen for.
  atEndOfTurn(() => {
    if (isDone) return;
    if (req.readableEnded) onEnd();
    else if (req.destroyed) onClose();
    else {
      timer = setTimeout(() => end('timeout'), timeoutMs);
      // The host may have paused it.
      req.on('end', onEnd).on('close', onClose).resume();
    }
  });

  function onData(data: Buffer | string): void {
    // Where the host has set an encoding, these are strings.
    const chunk =
      typeof data === 'string' ? Buffer.from(data, req.readableEncoding as BufferEncoding) : data;
    const reason = onChunk(chunk);
    if (reason !== undefined) end(reason);
  }

  function onEnd(): void {
    end(req.aborted ? 'gone' : 'end');
  }

  function onClose(): void {
    end('gone');
  }

  function end(ending: Ending<Reason>): void {
    if (isDone) return;
    isDone = true;
    clearTimeout(timer);
    if (ending !== 'end') req.off('data', onData);
    done(ending);
  }
}
