import type { XStatic } from 'typebox/schema';

import { REPLACED, type PlantFault } from '../plant-json.js';

/**
 * The JSON Schema of the body of every response but a 200. `error` is an int32.
 *
 * @example
 * ```ts
 * import { Compile } from 'typebox/schema';
 *
 * const isError = Compile(ErrorSchema).Check(JSON.parse(body));
 * ```
 */
export const ErrorSchema = {
  type: 'object',
  properties: {
    error: { type: 'integer', format: 'int32', description: 'Numeric error indicator' },
    message: { type: 'string', description: 'Text message describing the error' },
  },
  required: ['error', 'message'] as ['error', 'message'],
} as const;

/**
 * The body of every response but a 200.
 *
 * @example
 * ```ts
 * const { error, message } = (await response.json()) as ErrorBody;
 * if (error === 409) chooseAnotherId();
 * ```
 */
export type ErrorBody = Readonly<XStatic<typeof ErrorSchema>>;

/**
 * A response that is not a 200: status, `error`, message and headers travel together. Almost all
 * failures are created once, when this file is loaded, so their stack traces show nothing.
 */
export class Failure extends Error {
  readonly body: string;

  constructor(
    readonly status: number,
    readonly error: number,
    message: string,
    readonly headers: Readonly<Record<string, string>> = {},
    /** Whether HTTP says that the connection is closed after the response. */
    readonly closesConnection = false,
  ) {
    super(message);
    this.body = JSON.stringify({ error, message } satisfies ErrorBody);
  }
}

/**
 * The content cannot be stored. The interface that was given has one status for this, 400, so
 * `error` identifies the failure.
 */
const content = (error: number, message: string): Failure => new Failure(400, error, message);

/** The HTTP specifications define the status, and `error` equals it. */
const http = (status: number, message: string, headers?: Record<string, string>): Failure =>
  new Failure(status, status, message, headers);

const unavailable = (message: string): Failure => http(503, message, { 'Retry-After': '1' });

/** RFC 6750, section 3: no error code if the request carried no credentials. */
const unauthorized = (message: string, attributes = ''): Failure =>
  http(401, message, { 'WWW-Authenticate': `Bearer realm="plant-store"${attributes}` });

const closing = (status: number, message: string): Failure =>
  new Failure(status, status, message, {}, true);

/** Every failure that the service responds with. */
export const failures = {
  notPlant: (fault: PlantFault) => content(fault.kind === 'json' ? 400 : 422, fault.message),
  inexact: content(400, `body: ${REPLACED}`),
  conflict: content(409, 'id: belongs to a different plant; send another id'),
  tooLarge: (bytes: number) => content(413, `body: must not be larger than ${bytes} bytes`),
  mediaType: content(415, 'send JSON in UTF-8, with one line Content-Type: application/json'),
  contentCoding: content(415, 'body: must not be encoded; leave out Content-Encoding'),
  malformed: http(400, 'the request must be well-formed HTTP/1.1'),
  host: http(400, 'the request must name one host, as a name or an address with an optional port'),
  // RFC 9112, section 6.1.
  http10TransferCoding: closing(400, 'leave out Transfer-Encoding; HTTP/1.0 does not have it'),
  manyAuthorizations: http(400, 'the request must have one Authorization header, not more'),
  noToken: unauthorized('send a bearer token: Authorization: Bearer <token>'),
  wrongToken: unauthorized(
    'the bearer token is not valid; the valid ones are in PLANT_STORE_TOKEN, in the token file, ' +
      'or in the option tokens of the handler',
    ', error="invalid_token"',
  ),
  notFound: http(404, 'there is nothing at this path; plants are created at /plants'),
  method: http(405, 'use POST to create a plant; there is no request that reads plants', {
    Allow: 'POST',
  }),
  // RFC 9110, section 15.5.9.
  timeout: closing(408, 'the request did not arrive in time; send it again'),
  chunkExtensions: http(413, 'the chunk extensions of the request are too large'),
  expectation: http(417, 'the only expectation that can be met is 100-continue'),
  headersTooLarge: http(431, 'send fewer or shorter header lines; the header section is too large'),
  internal: http(500, 'the service failed; the plant may be sent again'),
  consumed: http(500, 'the service is misconfigured: it cannot read the body of a request'),
  transferCoding: http(501, 'the only transfer coding that is understood is chunked'),
  overloaded: unavailable('too much is being stored at the moment; send the plant again later'),
  unavailable: unavailable(
    'the plant was not stored, or it is unknown whether it was; send it again later',
  ),
} as const;
