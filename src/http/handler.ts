import { createAuthenticator } from './auth.js';
import { readBody } from './body.js';
import { createBudget, type Reservation } from './budget.js';
import { Failure, failures } from './failures.js';
import { headFailure, isForPlants, protocolFailure } from './head.js';
import {
  MAX_PENDING_REFUSALS,
  memoryFor,
  resolveLimits,
  type PlantHandlerLimits,
} from './limits.js';
import { parsePlant, plantFrom } from './new-plant.js';
import type { HttpRequest } from './request.js';
import {
  isClosing,
  observeClose,
  releaseWhenFlushed,
  sendFailure,
  sendPlant,
  type HttpResponse,
} from './respond.js';
import type { NewPlant } from '../plant.js';
import { limitRate, type Report } from '../report.js';
import { PlantStoreError, type PlantStore } from '../store.js';

/**
 * The options of {@link createPlantHandler}, resolved once when it is called.
 *
 * @example
 * ```ts
 * const options: PlantHandlerOptions = { store, tokens: ['a-secret-token'], maxBodyBytes: 65_536 };
 * ```
 */
export interface PlantHandlerOptions extends Partial<PlantHandlerLimits> {
  /** The store that plants are added to. The handler never closes it. */
  readonly store: PlantStore;
  /** The bearer tokens that are accepted: at least one, of at most 511 characters each (RFC 6750). */
  readonly tokens: readonly string[];
  /**
   * Called with `(message, cause)` on internal errors and on overload, at most 10 times in 10 seconds.
   * Default: `console.error`.
   */
  readonly report?: Report;
}

/**
 * Responds to `POST /plants`. A request for another path is passed to `next`, or answered with 404 if
 * there is no `next`.
 *
 * @example
 * ```ts
 * createServer((req, res) => handler(req, res, () => res.end('another path'))).listen(8080);
 * ```
 */
export interface PlantHandler {
  (req: HttpRequest, res: HttpResponse, next?: () => void): void;
  /**
   * Replaces the accepted tokens, for requests that arrive from now on.
   *
   * @throws TypeError as {@link createPlantHandler} does; then the tokens do not change.
   */
  setTokens(tokens: readonly string[]): void;
}

/**
 * Creates the request handler for a `node:http`, `node:https` or `node:http2` server, or for a framework
 * that passes on their requests and responses.
 *
 * The handler never throws, whatever arrives. It has its own limits for the size of a body, for the time
 * that a client takes, and for the memory of all requests together. `store.add`, `report` and `next` run
 * in the asynchronous context in which the handler was called.
 *
 * @throws TypeError if there is no store, no token, a token that no request could carry (RFC 6750,
 * section 2.1), or if `report` is not a function.
 * @throws RangeError if a limit is not an integer in its range.
 *
 * @example
 * ```ts
 * const store = await openPlantLog('data/plants.jsonl');
 * createServer(createPlantHandler({ store, tokens: [token] })).listen(8080);
 * ```
 */
export function createPlantHandler(options: PlantHandlerOptions): PlantHandler {
  const { store } = options;
  if (!isStore(store)) throw new TypeError('store: must have the methods add and close');
  const report = limitRate(options.report);
  const limits = resolveLimits(options);
  let authenticate = createAuthenticator(options.tokens);
  const memory = createBudget(limits.maxBufferedBytes, (isExhausted, bytes) => {
    if (isExhausted) report(`overloaded: requests hold ${bytes} bytes, more are refused`);
    else report('no longer overloaded');
  });
  const refusals = createBudget(MAX_PENDING_REFUSALS);

  function handle(req: HttpRequest, res: HttpResponse, next?: () => void): void {
    const isOurs = isForPlants(req);
    const isDropped = isClosing(req, res);
    if (!isOurs && next) {
      next();
      // The host may have set its header by now.
      observeClose(req, res);
      return;
    }
    // This response is queued behind the last one of its connection, and never sent.
    if (isDropped) {
      refuse(req, res, failures.unavailable);
      return;
    }
    observeClose(req, res);
    const failure =
      protocolFailure(req) ??
      authenticate(req) ??
      (isOurs ? headFailure(req, limits) : failures.notFound);
    if (failure) refuse(req, res, failure);
    else void createPlant(req, res);
  }

  async function createPlant(req: HttpRequest, res: HttpResponse): Promise<void> {
    const reservation = memory.reserve(memoryFor(0, limits));
    if (!reservation) {
      refuse(req, res, failures.overloaded);
      return;
    }
    try {
      const plant = req.readableDidRead
        ? plantLeftIn(req, reservation)
        : parsePlant(await readBody(req, limits, reservation));
      await store.add(plant);
      sendPlant(req, res, plant);
    } catch (error) {
      fail(req, res, failureOf(error));
    }
    releaseWhenFlushed(req, res, reservation, limits.bodyTimeoutMs);
  }

  /** Responds with a failure to a request that reserves no memory. Too many of them cost connections. */
  function refuse(req: HttpRequest, res: HttpResponse, failure: Failure): void {
    const reservation = refusals.reserve(1);
    if (!reservation) {
      req.socket.destroy();
      return;
    }
    fail(req, res, failure);
    releaseWhenFlushed(req, res, reservation, limits.bodyTimeoutMs);
  }

  /** Sends a failure. The connection is destroyed if that throws, as a response that a host has changed may. */
  function fail(req: HttpRequest, res: HttpResponse, failure: Failure): void {
    try {
      sendFailure(req, res, failure);
    } catch (error) {
      report('a response could not be sent', error);
      req.socket.destroy();
    }
  }

  function failureOf(error: unknown): Failure {
    if (error instanceof Failure) return error;
    if (error instanceof PlantStoreError)
      return error.code === 'conflict' ? failures.conflict : failures.unavailable;
    report('a request failed', error);
    return failures.fault;
  }

  /** The plant in what a body parser has left, which read the request before the handler. */
  function plantLeftIn({ rawBody, body }: HttpRequest, reservation: Reservation): NewPlant {
    const left = rawBody ?? body;
    if (left === undefined)
      throw new Error('a body parser has read the request and left neither rawBody nor body');
    const bytes = typeof left === 'string' ? Buffer.from(left) : left;
    if (Buffer.isBuffer(bytes)) {
      admit(bytes.length, reservation);
      return parsePlant(bytes);
    }
    const plant = plantFrom(bytes);
    // The body that was parsed has at least one byte for each character.
    admit(plant.name.length + (plant.tag ?? '').length, reservation);
    return plant;
  }

  /** Applies the limits of a body to one that has been read. */
  function admit(bytes: number, reservation: Reservation): void {
    if (bytes > limits.maxBodyBytes) throw failures.tooLarge(limits.maxBodyBytes);
    if (!reservation.growTo(memoryFor(bytes, limits))) throw failures.overloaded;
  }

  return Object.assign(handle, {
    setTokens(tokens: readonly string[]): void {
      authenticate = createAuthenticator(tokens);
    },
  });
}

function isStore(store: unknown): boolean {
  const { add, close } = (store ?? {}) as Record<keyof PlantStore, unknown>;
  return typeof add === 'function' && typeof close === 'function';
}
