import { createAuthenticator } from './auth.js';
import { readBody } from './body.js';
import { Budget, memoryForHead } from './budget.js';
import { contentFailure } from './content.js';
import { Failure, failures } from './failures.js';
import { MAX_REFUSED_BYTES, resolveLimits, type GivenLimits } from './limits.js';
import { parsedPlant } from './parsed-body.js';
import { protocolFailure } from './protocol.js';
import { releaseWhenFlushed } from './release.js';
import { isReadElsewhere, type HttpRequest, type HttpResponse } from './request.js';
import { sendFailure, sendPlant } from './respond.js';
import { parseNewPlant, PlantFault } from '../plant-json.js';
import { limitRate, type Report } from '../report.js';
import { PlantStoreError, type PlantStore } from '../store.js';

/**
 * The options of {@link createPlantHandler}, resolved once when it is called.
 */
export interface PlantHandlerOptions extends GivenLimits {
  /** The store that plants are added to. The handler never closes it. */
  readonly store: PlantStore;
  /**
   * The bearer tokens that are accepted: 1 to 100, of at most 511 characters each (RFC 6750,
   * section 2.1), but not the word Bearer.
   */
  readonly tokens: readonly string[];
  /**
   * Called with `(message, cause)` on internal errors, and when no memory is left: about 10 times
   * in 10 seconds at most. Default: `console.error`.
   */
  readonly report?: Report | undefined;
}

/**
 * Responds to `POST /plants`. With `next`, every other request is passed on, and only its path and
 * method are looked at. Without `next`, it is answered with 404 or 405 once its token is accepted.
 *
 * The returned promise resolves once the response is ended or the connection destroyed, or once
 * `next` has returned; if `next` returns a promise, once this promise is fulfilled. The handler
 * need not be awaited: it reports its own errors, throws only what `next` throws, and its promise
 * rejects only if the promise of `next` does.
 *
 * @example
 * ```ts
 * createServer((req, res) => handler(req, res, () => res.end('not for plants'))).listen(8080);
 * ```
 */
export interface PlantHandler {
  (req: HttpRequest, res: HttpResponse, next?: () => unknown): Promise<void>;
  /**
   * Replaces the accepted tokens, for requests that arrive from now on.
   *
   * @throws TypeError as {@link createPlantHandler} does; then the tokens do not change.
   */
  setTokens(tokens: readonly string[]): void;
  /** How many bytes are reserved for requests, of `maxBufferedBytes`. */
  bufferedBytes(): number;
}

/**
 * Creates the request handler for a `node:http`, `node:https` or `node:http2` server, or for a
 * framework that passes on their requests and responses.
 *
 * The handler has its own limits for the size of a body, for the time that a client takes, and for
 * the memory of all requests together. `store.add`, `report` and `next` run in the asynchronous
 * context in which the handler was called.
 *
 * @throws TypeError if `store` is not a store, or is a promise of one; if there is no token, more
 * than 100, or one that is not valid (see `tokens`); or if `report` is not a function.
 * @throws RangeError if a limit is not an integer in its range, or `maxBufferedBytes` less than
 * eight bodies.
 *
 * @example
 * ```ts
 * const store = await openPlantLog('data/plants.jsonl');
 * createServer(createPlantHandler({ store, tokens: [token] })).listen(8080);
 * ```
 */
export function createPlantHandler(options: PlantHandlerOptions): PlantHandler {
  const { store } = options;
  // A caller without types may pass anything.
  if (!isStore(store))
    throw new TypeError('store: must have the methods add and close; await a promise of a store');
  const report = limitRate(options.report);
  const limits = resolveLimits(options);
  // A client may take as long to receive its response as to send its body.
  const flushTimeoutMs = limits.bodyTimeoutMs;
  let authenticate = createAuthenticator(options.tokens);
  const memory = new Budget(limits.maxBufferedBytes);
  const refusals = new Budget(MAX_REFUSED_BYTES);

  function handle(req: HttpRequest, res: HttpResponse, next?: () => unknown): Promise<void> {
    // Not an async function: what `next` throws is thrown, not returned as a rejected promise.
    if (next && routeFailure(req)) return Promise.resolve(next()).then(() => undefined);
    return respond(req, res);
  }

  async function respond(req: HttpRequest, res: HttpResponse): Promise<void> {
    try {
      // node:http loses any bytes that follow a request with Upgrade in the same packet (Node
      // 20-26), so the connection is closed after the response. A response that the application has
      // begun can get no header: it is destroyed instead of sent.
      if (req.headers.upgrade !== undefined && !res.headersSent)
        res.setHeader('Connection', 'close');
      const failure =
        protocolFailure(req) ??
        authenticate(req) ??
        routeFailure(req) ??
        contentFailure(req, limits);
      await (failure ? refuse(req, res, failure) : createPlant(req, res));
    } catch (cause) {
      // The application has changed the response so that sending throws.
      report('a response could not be sent', cause);
      req.socket.destroy?.();
    }
  }

  async function createPlant(req: HttpRequest, res: HttpResponse): Promise<void> {
    const headBytes = memoryForHead(req);
    const reservation = memory.reserve(headBytes);
    if (!reservation) return refuse(req, res, failures.overloaded);
    try {
      const plant = isReadElsewhere(req)
        ? parsedPlant(req, limits, reservation)
        : parseNewPlant(await readBody(req, limits, reservation));
      const outcome: unknown = await store.add(plant);
      // A store without types may resolve to something else instead of rejecting.
      if (outcome !== 'created' && outcome !== 'unchanged')
        throw new TypeError("store: add must resolve to 'created' or 'unchanged'");
      sendPlant(req, res, plant);
    } catch (error) {
      reservation.shrinkTo(headBytes);
      await fail(req, res, error);
    } finally {
      releaseWhenFlushed(req, res, reservation, flushTimeoutMs);
    }
  }

  /**
   * Responds with a failure to a request that has no reservation of `memory`. Its head counts
   * against `refusals` until the response is flushed. If no room is left there, destroys the
   * connection instead.
   */
  async function refuse(req: HttpRequest, res: HttpResponse, failure: Failure): Promise<void> {
    const reservation = refusals.reserve(memoryForHead(req));
    if (!reservation) {
      req.socket.destroy?.();
      return;
    }
    try {
      await fail(req, res, failure);
    } finally {
      releaseWhenFlushed(req, res, reservation, flushTimeoutMs);
    }
  }

  /** Reports an error if the operator has to know of it, then responds with its failure. */
  async function fail(req: HttpRequest, res: HttpResponse, error: unknown): Promise<void> {
    const failure = failureOf(error);
    if (failure === failures.overloaded)
      report(
        `overloaded: requests hold ${memory.reserved} of ${memory.max} bytes (maxBufferedBytes, ` +
          'PLANT_STORE_MAX_BUFFERED); requests that do not fit into the rest are refused',
      );
    if (failure === failures.consumed)
      report(
        'the application has read or decoded the body and left neither rawBody nor body; ' +
          'mount the handler before what reads it',
      );
    if (failure === failures.internal) report('a request failed', error);
    await sendFailure(req, res, failure);
  }

  return Object.assign(handle, {
    setTokens(tokens: readonly string[]): void {
      authenticate = createAuthenticator(tokens);
    },
    bufferedBytes: () => memory.reserved,
  });
}

function failureOf(error: unknown): Failure {
  if (error instanceof Failure) return error;
  if (error instanceof PlantFault) return failures.notPlant(error);
  if (error instanceof PlantStoreError)
    return error.code === 'conflict' ? failures.conflict : failures.unavailable;
  return failures.internal;
}

/**
 * RFC 9112, section 3.2: an origin-form target or, as a server must accept too, an absolute-form
 * one. Only the scheme and the host are case-insensitive; Node 20 has no `(?i:)` for a part of an
 * expression.
 */
const PLANTS = /^(?:[Hh][Tt]{2}[Pp][Ss]?:\/\/[^/?#]*)?\/plants(?:\?|$)/;

/** The failure of a request that is not `POST /plants`; `undefined` if it is. */
export function routeFailure({ url = '', method }: HttpRequest): Failure | undefined {
  if (!PLANTS.test(url)) return failures.notFound;
  return method === 'POST' ? undefined : failures.method;
}

function isStore(store: unknown): boolean {
  const { add, close } = (store ?? {}) as Record<keyof PlantStore, unknown>;
  return typeof add === 'function' && typeof close === 'function';
}
