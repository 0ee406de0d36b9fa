import type { EventEmitter } from 'node:events';
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http';
import type { Readable, Writable } from 'node:stream';

/**
 * The part of a request that the handler uses, which requests of node:http and node:http2 have in
 * common. A request that has not come over a connection, such as one of Hapi's `inject`, may lack
 * what is optional here.
 */
export interface HttpRequest extends Readable {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** Default: 1.1. */
  readonly httpVersion?: string;
  readonly headers: IncomingHttpHeaders;
  /** Without them, no header field counts as repeated. */
  readonly rawHeaders?: readonly string[];
  readonly rawTrailers?: readonly string[];
  /** The connection; in HTTP/2 a proxy of it that belongs to the request's stream. */
  readonly socket: EventEmitter & {
    readonly destroyed?: boolean;
    readonly writable?: boolean;
    destroy?(): unknown;
  };
  /** Whether all of the request has arrived. */
  readonly complete?: boolean;
  /** Whether the client closed the request before its end; in HTTP/2 `end` is emitted even then. */
  readonly aborted?: boolean;
  /** The bytes of the body, if a body parser has stored them here. */
  readonly rawBody?: unknown;
  /** The body that a body parser has stored here: its bytes, its text, or what it has parsed. */
  readonly body?: unknown;
}

/**
 * The part of a response that the handler uses, which responses of node:http and node:http2 have
 * in common. A mock, such as one of node-mocks-http, may lack what is optional here.
 */
export interface HttpResponse extends Omit<Writable, 'cork' | 'uncork'> {
  cork?(): void;
  uncork?(): void;
  readonly headersSent: boolean;
  /** Node's types lack this method for HTTP/2, but the responses have it. */
  flushHeaders?(): void;
  setHeader(name: string, value: string): unknown;
  writeHead(status: number, headers: OutgoingHttpHeaders): unknown;
}

/**
 * Whether a request was sent in HTTP/2. Its `httpVersion` cannot show that, because the parser of
 * HTTP/1 accepts `HTTP/2.0` in a request line. But it rejects a header name with a colon,
 * and the name of every pseudo-header field begins with one (RFC 9113, section 8.3).
 */
export function isHttp2({ headers }: Pick<HttpRequest, 'headers'>): boolean {
  return ':method' in headers;
}

/**
 * Whether a header field, whose `name` is in lower case, has several lines. Of some fields, among
 * them Host, Authorization and Content-Type, `req.headers` has only the first line.
 */
export function isRepeated(
  { rawHeaders = [] }: Pick<HttpRequest, 'rawHeaders'>,
  name: string,
): boolean {
  let lines = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const each = rawHeaders[i];
    if (each?.length === name.length && each.toLowerCase() === name) lines++;
  }
  return lines > 1;
}

/** Whether the body of a request can be read. A mock may have it only in `body`. */
export function isStream(req: HttpRequest): boolean {
  return typeof req.resume === 'function';
}

/** Whether the application has read from the body, or has a listener that will read from it. */
export function isReadElsewhere(req: HttpRequest): boolean {
  if (!isStream(req)) return true;
  // A body that has ended without being read was empty, even if its stream flows.
  if (req.readableEnded) return req.readableDidRead;
  return req.readableDidRead || req.readableFlowing === true || req.listenerCount('readable') > 0;
}

/** The length that a request declares for its body, in bytes; `NaN` if it declares none. */
export function declaredLength({ headers }: HttpRequest): number {
  return Number(headers['content-length']);
}
