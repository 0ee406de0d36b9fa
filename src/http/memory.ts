import { clearTimeout, setTimeout } from 'node:timers';

import { checkRange } from '../range.js';
import type { HttpRequest, HttpResponse } from './request.js';

/**
 * The limits of a request handler. Each is an integer of at least 1.
 */
export interface PlantHandlerLimits {
  /** The largest request body, in bytes: at most 67108864. Default: 1048576. */
  readonly maxBodyBytes: number;
  /**
   * The memory reserved for all requests together, in bytes: at least eight times `maxBodyBytes`. A request
   * reserves 3072 bytes, the size of its head, 128 bytes for each header line, and four times the size of
   * its body, or up to eight times if it arrives in pieces. Beyond the limit, plants are answered with 503.
   * Default: 67108864.
   */
  readonly maxBufferedBytes: number;
  /**
   * How long a client may take to send a body, and again to receive its response, in milliseconds: at
   * most 2147483647. Default: 30000.
   */
  readonly bodyTimeoutMs: number;
}

/** The default of each limit. */
export const DEFAULT_LIMITS: PlantHandlerLimits = {
  maxBodyBytes: 1_048_576,
  maxBufferedBytes: 67_108_864,
  bodyTimeoutMs: 30_000,
};

/** How many bodies of the largest size must at least fit, so that one leaves room for others. */
export const MIN_BUFFERED_BODIES = 8;

/** The largest value of each limit. */
export const MAX_LIMITS: PlantHandlerLimits = {
  maxBodyBytes: 67_108_864,
  maxBufferedBytes: Number.MAX_SAFE_INTEGER,
  bodyTimeoutMs: 2_147_483_647,
};

/**
 * The largest number of header lines of a request, as in Apache httpd and Python's http.client. Clients
 * send about ten, and a proxy adds ten more.
 */
export const MAX_HEADER_LINES = 100;

/**
 * The memory for requests that are refused by their heads, most of them without a token, until their bodies are
 * drained and their responses flushed: 5,000 of the smallest, of which 3,640 fit into one read of a socket.
 */
export const MAX_REFUSED_BYTES = 16_777_216;

/**
 * How much of a refused request's body is read and dropped, and for how long, before the connection is
 * closed: a client that sends its whole body first would otherwise get a reset in place of the response.
 */
export const DRAIN = { maxBytes: 16_777_216, timeoutMs: 5_000 } as const;

/**
 * Checks the limits and fills in defaults.
 *
 * @throws RangeError if a limit is not an integer in its range, or too small for the other one.
 */
export function resolveLimits(options: Partial<PlantHandlerLimits>): PlantHandlerLimits {
  const limits = { ...DEFAULT_LIMITS };
  for (const name of Object.keys(limits) as (keyof PlantHandlerLimits)[]) {
    const value = options[name] ?? DEFAULT_LIMITS[name];
    checkRange(name, value, MAX_LIMITS[name]);
    limits[name] = value;
  }
  if (limits.maxBufferedBytes < MIN_BUFFERED_BODIES * limits.maxBodyBytes)
    throw new RangeError('maxBufferedBytes: must be at least eight times maxBodyBytes');
  return limits;
}

/** The memory that a request takes, in bytes: about what was measured with Node 20 to 26. */
export const REQUEST_COST = {
  /** The objects of a request and of its response, and its place in the queue. */
  objects: 3072,
  /** A header line, in addition to its characters: its name and its value are strings in two tables. */
  line: 128,
  /** How many times a body is held: as bytes, as text, as the strings of the plant, and in the response. */
  bodyTimes: 4,
} as const;

export function memoryForHead({ url = '', rawHeaders }: HttpRequest): number {
  return REQUEST_COST.objects + url.length + memoryForLines(rawHeaders);
}

/** The memory for header or trailer lines, in which names and values alternate. */
export function memoryForLines(lines: readonly string[] = []): number {
  let bytes = (REQUEST_COST.line * lines.length) / 2;
  for (const text of lines) bytes += text.length;
  return bytes;
}

/** The memory for a body of this many bytes. */
export function memoryForBody(bytes: number): number {
  return REQUEST_COST.bodyTimes * bytes;
}

/** A bound for the memory that all requests hold together, in bytes. */
export interface Budget {
  /** The amount that is reserved now. */
  readonly reserved: number;
  /** Reserves an amount, as {@link Reservation.growBy} does. Returns `undefined` if too little is left. */
  reserve(amount: number): Reservation | undefined;
}

/** What one request holds of a {@link Budget}. */
export interface Reservation {
  /**
   * Grows by an amount, but never beyond the whole budget, so that a request fits at least when it is alone.
   * Returns `false`, and stays as it is, if too little is left.
   */
  growBy(amount: number): boolean;
  /** Gives back all but an amount. */
  shrinkTo(amount: number): void;
}

export function createBudget(max: number): Budget {
  let reserved = 0;
  return {
    get reserved() {
      return reserved;
    },
    reserve(amount) {
      let held = 0;
      const reservation: Reservation = {
        growBy(more) {
          const added = Math.min(held + more, max) - held;
          if (reserved + added > max) return false;
          reserved += added;
          held += added;
          return true;
        },
        shrinkTo(amount) {
          reserved -= held - amount;
          held = amount;
        },
      };
      return reservation.growBy(amount) ? reservation : undefined;
    },
  };
}

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
