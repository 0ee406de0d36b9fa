import type { OutgoingHttpHeaders } from 'node:http';
import type { Writable } from 'node:stream';

/** The part of a response that the handler uses: node:http's and node:http2's both have it. */
export interface HttpResponse extends Writable {
  readonly headersSent: boolean;
  /** Whether the connection persists after this response; HTTP/2's always does. */
  readonly shouldKeepAlive?: boolean;
  /** In HTTP/1, the connection while this response is the next one to be sent on it. */
  readonly socket: unknown;
  /** Both have it, but the types of HTTP/2 do not. */
  flushHeaders?(): void;
  getHeader(name: string): number | string | string[] | undefined;
  setHeader(name: string, value: string): unknown;
  writeHead(status: number, headers: OutgoingHttpHeaders): unknown;
}
