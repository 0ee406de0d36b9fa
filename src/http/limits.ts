import { checkInteger } from '../options.js';

/**
 * The limits of a request handler. Each is an integer of at least 1.
 */
export interface PlantHandlerLimits {
  /** The largest request body, in bytes: at most 67108864. Default: 1048576. */
  readonly maxBodyBytes: number;
  /**
   * The memory reserved for all requests together, in bytes: at least eight times `maxBodyBytes`. A
   * request reserves 3072 bytes, plus the size of its head, plus 128 bytes for each header line,
   * plus four times the size of its body. A body that arrives in pieces reserves up to eight times
   * its size, but not more than four times `maxBodyBytes`. Beyond the limit, plants are answered
   * with 503. Default: 67108864.
   */
  readonly maxBufferedBytes: number;
  /**
   * How long a client may take to send a body, and again to receive its response, in milliseconds:
   * at most 2147483647. Default: 30000.
   */
  readonly bodyTimeoutMs: number;
}

/** Limits as a caller gives them: a limit that is missing or `undefined` has its default. */
export type GivenLimits = {
  readonly [Name in keyof PlantHandlerLimits]?: PlantHandlerLimits[Name] | undefined;
};

/** The default of each limit. */
export const DEFAULT_LIMITS: PlantHandlerLimits = {
  maxBodyBytes: 1_048_576,
  maxBufferedBytes: 67_108_864,
  bodyTimeoutMs: 30_000,
};

/**
 * The smallest value of `maxBufferedBytes`, in bodies of the largest size. One of these bodies
 * reserves four times its size, so it takes at most half of the memory.
 */
export const MIN_BUFFERED_BODIES = 8;

/** The largest value of each limit. */
export const MAX_LIMITS: PlantHandlerLimits = {
  maxBodyBytes: 67_108_864,
  maxBufferedBytes: Number.MAX_SAFE_INTEGER,
  bodyTimeoutMs: 2_147_483_647,
};

/**
 * The largest number of header lines of a request, as in Apache httpd and Python's http.client.
 * Clients send about ten, and a proxy adds ten more.
 */
export const MAX_HEADER_LINES = 100;

/**
 * Bounds the memory of requests that are refused before their bodies are read; most of them carry
 * no token. Each request counts until its body is drained and its response flushed. There is room
 * for 5,000 minimal requests; one read of a socket, of 64 KiB, can bring 3,640.
 */
export const MAX_REFUSED_BYTES = 16_777_216;

/** The longest bearer token that can be configured, in characters. */
export const MAX_TOKEN_LENGTH = 511;

/**
 * The largest number of tokens: each is compared on every request, before the client is
 * authenticated.
 */
export const MAX_TOKENS = 100;

/**
 * How much of the body of a refused request is read and dropped, and for how long, before the
 * connection is closed. Otherwise a client that sends its whole body before it reads would get a
 * reset in place of the response. Tests replace these values.
 */
export const DRAIN = { maxBytes: 16_777_216, timeoutMs: 5_000 } as const;

/**
 * Checks the limits and fills in defaults.
 *
 * @throws RangeError if a limit is not an integer in its range, or `maxBufferedBytes` less than
 * eight bodies.
 */
export function resolveLimits(options: GivenLimits): PlantHandlerLimits {
  const limits = { ...DEFAULT_LIMITS };
  for (const name of Object.keys(limits) as (keyof PlantHandlerLimits)[]) {
    limits[name] = options[name] ?? DEFAULT_LIMITS[name];
    checkInteger(name, limits[name], MAX_LIMITS[name]);
  }
  if (limits.maxBufferedBytes < MIN_BUFFERED_BODIES * limits.maxBodyBytes)
    throw new RangeError('maxBufferedBytes: must be at least eight times maxBodyBytes');
  return limits;
}
