import { MIMEType } from 'node:util';

import { answerFailure, answerPlant, Failure, failures, type HttpResponse } from './failures.js';
import { createAuthenticator } from './auth.js';
import { declaredLength, DISCARD, discardBody, readBody, type HttpRequest } from './body.js';
import { createBudget, type Share } from './budget.js';
import { parsePlant, plantFrom, type NewPlant } from '../plant.js';
import { limitRate, type Report } from '../report.js';
import { PlantStoreError, type PlantStore } from '../store.js';
import { atEndOfTurn } from './turn.js';

/** The limits of a handler. */
export interface PlantHandlerLimits {
  /** The largest body, in bytes. */
  readonly maxBodyBytes: number;
  /**
   * Bytes held for all requests together, a body several times; beyond it plants are refused with 503.
   */
  readonly maxBufferedBytes: number;
  /** How long a client may take to send a body, and how long to take its answer, in ms. */
  readonly bodyTimeoutMs: number;
}

/** What the limits are where nothing else is said. @internal */
export const DEFAULT_LIMITS: PlantHandlerLimits = {
  maxBodyBytes: 1_048_576,
  maxBufferedBytes: 67_108_864,
  bodyTimeoutMs: 30_000,
};

/** The largest value that each limit can have. @internal */
export const MAX_LIMITS: PlantHandlerLimits = {
  maxBodyBytes: 67_108_864,
  maxBufferedBytes: Number.MAX_SAFE_INTEGER,
  bodyTimeoutMs: 2_147_483_647,
};

export interface PlantHandlerOptions extends Partial<PlantHandlerLimits> {
  /** Where the plants go. */
  readonly store: PlantStore;
  /** The bearer tokens that are accepted: at least one. */
  readonly tokens: readonly string[];
  /** Hears of faults in the program and of overload. Writes to `console.error` by default. */
  readonly report?: Report;
}

/**
 * Answers `POST /plants`. Requests to other paths go to `next`, or are answered with 404 where there
 * is none.
 */
export interface PlantHandler {
  (req: HttpRequest, res: HttpResponse, next?: () => void): void;
  /**
   * Accepts these tokens from now on, and no others.
   *
   * @throws TypeError as {@link createPlantHandler} does; the tokens then stay as they were.
   */
  setTokens(tokens: readonly string[]): void;
}

/**
 * What a request counts for: at least its objects and its place in the queue, and more often than
 * once its body, which lives on as text, as strings and in the answer.
 * @internal
 */
export const REQUEST_COST = { minBytes: 4096, bodyTimes: 4 } as const;

/**
 * How many refusals may wait for their clients at a time: small requests can be many in one packet.
 * @internal
 */
export const MAX_REFUSALS = 16_384;

/**
 * Makes the request handler for a `node:http`, `node:https` or `node:http2` server, or a framework
 * that hands on their requests and responses.
 *
 * It never throws, whatever arrives, and brings its own guards for the size of a body, its time and
 * the memory of all requests together.
 *
 * @throws TypeError if there is no store, no token, one that no request could carry (RFC 6750, section 2.1),
 * or a report that is no function.
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
  const budget = createBudget(limits.maxBufferedBytes, report);
  let refusals = 0;
  const refusal: Pick<Share, 'keep'> = {
    keep(bytes) {
      if (bytes === 0) refusals--;
    },
  };

  function handle(req: HttpRequest, res: HttpResponse, next?: () => void): void {
    const ours = PLANTS.test(req.url ?? '');
    if (!ours && next) {
      next();
      return;
    }
    const failure = authenticate(req.rawHeaders) ?? (ours ? headFailure(req) : failures.notFound);
    if (failure) turnAway(req, res, failure);
    else create(req, res);
  }

  /** Refuses a request that holds nothing of the budget; cuts the client off where that is too much, too. */
  function turnAway(req: HttpRequest, res: HttpResponse, failure: Failure): void {
    if (refusals === MAX_REFUSALS) {
      req.socket.destroy();
      return;
    }
    refusals++;
    refuse(req, res, failure);
    onceTaken(req, res, limits.bodyTimeoutMs, refusal);
  }

  /** What the head of a request already tells. */
  function headFailure({ method, headers }: HttpRequest): Failure | undefined {
    if (method !== 'POST') return failures.method;
    if (!isJson(headers['content-type'])) return failures.mediaType;
    if (!isOnly('identity', headers['content-encoding'])) return failures.contentCoding;
    if (!isOnly('chunked', headers['transfer-encoding'])) return failures.transferCoding;
    if (declaredLength(headers) > limits.maxBodyBytes)
      return failures.tooLarge(limits.maxBodyBytes);
    return undefined;
  }

  /** What a request takes of the budget. Any body that is allowed has room, if only alone. */
  function costOf(bodyBytes: number): number {
    const { maxBufferedBytes } = limits;
    const body = Math.min(REQUEST_COST.bodyTimes * bodyBytes, maxBufferedBytes / 2);
    return Math.min(Math.max(REQUEST_COST.minBytes, bodyBytes, body), maxBufferedBytes);
  }

  function create(req: HttpRequest, res: HttpResponse): void {
    const share = budget.open();
    const hold = (bodyBytes: number): boolean => share.hold(costOf(bodyBytes));
    const settle = (outcome: NewPlant | Failure | undefined): void => {
      if (outcome instanceof Failure) refuse(req, res, outcome);
      else if (outcome) answerPlant(res, outcome);
      // The client went away before its plant had arrived.
      else res.destroy();
      onceTaken(req, res, limits.bodyTimeoutMs, share);
    };

    if (!hold(0)) turnAway(req, res, failures.overloaded);
    else if (req.readableDidRead) void storePlant(() => plantLeftIn(req), settle);
    else
      readBody(req, limits, hold, (body) => {
        if (Buffer.isBuffer(body)) void storePlant(() => parsePlant(body), settle);
        else settle(body);
      });
  }

  /** Stores a plant, if it is found to be one. */
  async function storePlant(
    find: () => NewPlant | Failure,
    settle: (outcome: NewPlant | Failure) => void,
  ): Promise<void> {
    let outcome: NewPlant | Failure;
    try {
      outcome = find();
      if (!(outcome instanceof Failure)) await store.add(outcome);
    } catch (error) {
      outcome = failureOf(error);
    }
    settle(outcome);
  }

  function failureOf(error: unknown): Failure {
    if (error instanceof PlantStoreError)
      return error.code === 'conflict' ? failures.conflict : failures.unavailable;
    report('a request failed', error);
    return failures.fault;
  }

  /** The plant in what a body parser left that has read the request before. */
  function plantLeftIn({ rawBody, body }: HttpRequest): NewPlant | Failure {
    const left = rawBody ?? body;
    if (left === undefined)
      throw new Error('a body parser has read the request and left neither rawBody nor body');
    const bytes = typeof left === 'string' ? Buffer.from(left) : left;
    if (!Buffer.isBuffer(bytes)) return plantFrom(bytes);
    return bytes.length > limits.maxBodyBytes
      ? failures.tooLarge(limits.maxBodyBytes)
      : parsePlant(bytes);
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

const JSON_TYPE = 'application/json';

/** RFC 9112, section 3.2: a path alone or, as a server must accept too, after an origin. */
const PLANTS = /^(?:[Hh][Tt]{2}[Pp][Ss]?:\/\/[^/?#]*)?\/plants(?:\?|$)/;

function isJson(contentType = ''): boolean {
  if (contentType === JSON_TYPE) return true;
  try {
    const { essence, params } = new MIMEType(contentType);
    return essence === JSON_TYPE && /^utf-?8$/i.test(params.get('charset') ?? 'utf-8');
  } catch {
    return false;
  }
}

function isOnly(coding: string, header = coding): boolean {
  return header.toLowerCase() === coding;
}

function resolveLimits(options: Partial<PlantHandlerLimits>): PlantHandlerLimits {
  const limits = { ...DEFAULT_LIMITS };
  for (const name of Object.keys(limits) as (keyof PlantHandlerLimits)[]) {
    const value = options[name] ?? DEFAULT_LIMITS[name];
    if (!Number.isInteger(value) || value < 1 || value > MAX_LIMITS[name])
      throw new RangeError(`${name}: must be an integer between 1 and ${MAX_LIMITS[name]}`);
    limits[name] = value;
  }
  if (limits.maxBufferedBytes < limits.maxBodyBytes)
    throw new RangeError('maxBufferedBytes: must not be less than maxBodyBytes');
  return limits;
}

/** Keeps what the client has not taken of its answer, and cuts it off where that takes too long. */
function onceTaken(
  { socket }: HttpRequest,
  res: HttpResponse,
  timeoutMs: number,
  share: Pick<Share, 'keep'>,
): void {
  // Most answers have been taken by then, and need no timer.
  atEndOfTurn(() => {
    const left = socket.destroyed ? 0 : res.writableLength;
    share.keep(left);
    if (left === 0) return;
    const timer = setTimeout(() => {
      done();
      res.destroy();
    }, timeoutMs);
    res.once('close', done);
    // A pipelined answer that still waits for its turn never closes if the connection does.
    socket.setMaxListeners(0).once('close', done);

    function done(): void {
      clearTimeout(timer);
      res.off('close', done);
      socket.off('close', done);
      share.keep(0);
    }
  });
}

/**
 * Answers a request of which a part may still be under way. The answer leaves at once; then the
 * rest of the body is read over, within bounds, so that the client gets to see it.
 * @internal
 */
export function refuse(req: HttpRequest, res: HttpResponse, failure: Failure): void {
  answerFailure(res, failure, staysOpen(req, failure) ? {} : { Connection: 'close' });
  // RFC 9113, section 8.1: in HTTP/2 a complete answer may come before the end of the request.
  if (req.httpVersionMajor > 1) res.end();
  discardBody(req, (isWhole) => {
    if (isWhole) res.end();
    else res.destroy();
  });
}

/** Whether the connection can be used again: HTTP/2's can, HTTP/1.1's once the body has been read. */
function staysOpen({ httpVersionMajor, headers }: HttpRequest, { status }: Failure): boolean {
  if (httpVersionMajor > 1) return true;
  if (status === 408 || headers.expect !== undefined) return false;
  return (
    headers['transfer-encoding'] === undefined && !(declaredLength(headers) > DISCARD.maxBytes)
  );
}
