/*
 * How a body is read: a small body that declares its length is read in one piece, at the end of the
 * turn of the event loop in which its request began, because most bodies have arrived by then. Any
 * other body is read with listeners and a timer, which take a fifth more time on the main thread
 * (256 connections, Node 24).
 */

// The global is a getter, which takes time on the path of a request.
import { Buffer } from 'node:buffer';
// Not the globals, which fake timers of test runners replace: then no plant would be answered.
import { clearTimeout, setImmediate, setTimeout } from 'node:timers';

import { memoryForBody, memoryForLines, type Reservation } from './budget.js';
import { DRAIN, type PlantHandlerLimits } from './limits.js';
import { failures, type Failure } from './failures.js';
import { declaredLength, isHttp2, isStream, type HttpRequest } from './request.js';

/**
 * The largest body that node:http may queue until the end of the turn, by its declared length.
 * node:http queues a body in objects of about 300 bytes, each of which may hold only one byte: 120
 * bodies of 60 kB, with chunks of one byte, took 1.7 GiB.
 */
const MAX_QUEUED_BYTES = 16_384;

const NOTHING = Buffer.alloc(0);

/**
 * Reads a body and the trailers to their end, and lets the request's reservation grow with them.
 * Not an async function, which would take 0.4 µs more for each plant.
 *
 * Rejects with a {@link Failure} if the body is too large, too slow, aborted, or if there is no
 * memory left for it.
 */
export function readBody(
  req: HttpRequest,
  limits: PlantHandlerLimits,
  reservation: Reservation,
): Promise<Buffer> {
  req.on('error', ignore);
  if (!mayQueue(req)) return collectBody(req, limits, reservation);
  return endOfTurn().then(() =>
    hasArrived(req) ? takeBody(req, limits, reservation) : collectBody(req, limits, reservation),
  );
}

/** Takes a body that has arrived as a whole. */
function takeBody(req: HttpRequest, limits: PlantHandlerLimits, reservation: Reservation): Buffer {
  const body = (req.read() ?? NOTHING) as Buffer | string;
  if (typeof body === 'string') throw failures.consumed;
  if (body.length > limits.maxBodyBytes) throw failures.tooLarge(limits.maxBodyBytes);
  // With `insecureHTTPParser`, a body that declares its length may be chunked, and have trailers.
  const memory = memoryForBody(body.length) + memoryForLines(req.rawTrailers);
  if (!reservation.growBy(memory)) throw failures.overloaded;
  return body;
}

/** Collects a body that is still arriving. */
async function collectBody(
  req: HttpRequest,
  limits: PlantHandlerLimits,
  reservation: Reservation,
): Promise<Buffer> {
  let body: Buffer = NOTHING;
  let length = 0;

  function take(chunk: Buffer | string): Failure | undefined {
    if (typeof chunk === 'string') return failures.consumed;
    const needed = length + chunk.length;
    if (needed > limits.maxBodyBytes) return failures.tooLarge(limits.maxBodyBytes);
    if (needed > body.length) {
      // Doubling the buffer bounds the copying, and a body that trickles in is not held as a
      // million chunks.
      const capacity = Math.min(Math.max(needed, 2 * body.length), limits.maxBodyBytes);
      const more = memoryForBody(capacity - body.length);
      if (!reservation.growBy(more)) return failures.overloaded;
      // Most bodies arrive in one chunk, which needs no copy.
      body = length === 0 ? chunk : Buffer.concat([body], capacity);
    }
    if (length > 0) chunk.copy(body, length);
    length = needed;
    return undefined;
  }

  const failure = await readChunks(req, limits.bodyTimeoutMs, take);
  if (failure) {
    // The listeners on the request and the stack trace of the failure refer to this scope. While
    // the rest is drained, they would hold the body, whose memory is not reserved any more.
    body = NOTHING;
    throw failure;
  }
  if (!reservation.growBy(memoryForLines(req.rawTrailers))) throw failures.overloaded;
  return body.length === length ? body : body.subarray(0, length);
}

/** Whether node:http may queue a body until the end of the turn. */
function mayQueue(req: HttpRequest): boolean {
  // The program sends 100 Continue when a request with `Expect` is resumed, which `takeBody` does
  // not do. Without a 100, node:http closes the connection after the response (Node 20-26). Later
  // requests on the connection may have been handled by then, and would get no response.
  return req.headers.expect === undefined && declaredLength(req) <= MAX_QUEUED_BYTES;
}

let turn: Promise<void> | undefined;

/**
 * Resolves after the current poll phase, once everything that has arrived has been parsed. All
 * callers in one turn of the event loop share one `setImmediate`.
 */
function endOfTurn(): Promise<void> {
  turn ??= new Promise((resolve) => {
    setImmediate(() => {
      turn = undefined;
      resolve();
    });
  });
  return turn;
}

/**
 * Whether all of a request has arrived, and can be read. HTTP/2's `complete` is true of an aborted
 * request, too.
 */
function hasArrived(req: HttpRequest): boolean {
  return req.complete === true && !req.destroyed && !isHttp2(req);
}

/**
 * Takes a chunk, which is a string if the application has set an encoding. After it has returned a
 * failure, it is not called again.
 */
type Take = (chunk: Buffer | string) => Failure | undefined;

/**
 * Calls `take` with each chunk of a body that is still arriving. Resolves to `undefined` at the end
 * of the body, or to a failure: the one that `take` returns, or that the body is late or aborted.
 */
function readChunks(req: HttpRequest, timeoutMs: number, take: Take): Promise<Failure | undefined> {
  return new Promise((resolve) => {
    // After a pause of the process (SIGSTOP, a suspended machine), timers run before sockets are
    // read. By the end of the turn, what had arrived in time has been read.
    const timer = setTimeout(() => setImmediate(settle, failures.timeout), timeoutMs);
    function settle(failure: Failure | undefined): void {
      clearTimeout(timer);
      req.off('data', onData);
      resolve(failure);
    }
    function onData(chunk: Buffer | string): void {
      const failure = take(chunk);
      if (failure) settle(failure);
    }
    // In HTTP/2, `end` is emitted even if the client has closed the request. After `end`, `close`
    // has no effect.
    function onEnd(): void {
      const isWhole = req.readableEnded && !req.aborted;
      settle(isWhole ? undefined : failures.malformed);
    }
    if (req.readableEnded || req.destroyed) {
      onEnd();
      return;
    }
    req.on('end', onEnd).on('close', onEnd);
    // The application may have paused the request.
    req.on('data', onData).resume();
  });
}

/**
 * Reads and drops the rest of a body within the bounds of {@link DRAIN}, so that a client that is
 * still sending gets to see its response. Resolves to whether the end of the body was reached.
 */
export async function drainBody(req: HttpRequest): Promise<boolean> {
  if (!isStream(req)) return true;
  req.on('error', ignore);
  let length = 0;
  const failure = await readChunks(req, DRAIN.timeoutMs, (chunk) => {
    length += chunk.length;
    return length > DRAIN.maxBytes ? failures.tooLarge(DRAIN.maxBytes) : undefined;
  });
  return !failure;
}

/** Without a listener, an error would end the process. */
const ignore = (): void => undefined;
