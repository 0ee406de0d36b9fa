import { createServer, STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { Server as NetServer, type AddressInfo, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';

import { failures, type Failure } from '../http/failures.js';
import { DISCARD } from '../http/body.js';
import { refuse, type PlantHandler } from '../http/handler.js';
import { reasonOf } from '../log/file.js';
import { limitRate, type Report } from '../report.js';
import type { TlsMaterial } from './credentials.js';

export interface ListenerOptions {
  readonly handler: PlantHandler;
  readonly maxConnections: number;
  /** Serve HTTPS with this. */
  readonly tls?: TlsMaterial | undefined;
  /** Hears of connections that are too many. Writes to `console.error` by default. */
  readonly report?: Report;
}

/** A node:http or node:https server with limits, whose every answer has a body in our shape. */
export interface Listener {
  /** Resolves to the URL of the server once it listens. */
  listen(host: string, port: number): Promise<string>;
  /**
   * Takes no more connections, answers what is under way, closes connections as they fall idle,
   * and resolves when all are closed, or when `timeoutMs` are over.
   */
  stop(timeoutMs: number): Promise<void>;
}

/** The limits of a connection, in milliseconds and bytes. */
export const CONNECTION_LIMITS = {
  handshakeTimeout: 10_000,
  /** The head of a request, from its first byte or, for the first one, from the connection on. */
  headersTimeout: 10_000,
  /** A whole request. More than the handler allows for a body, so that the handler answers first. */
  requestTimeout: 60_000,
  /** None: node:http would start a timer after each answer, which costs a twentieth of a request. */
  keepAliveTimeout: 0,
  connectionsCheckingInterval: 1_000,
  maxHeaderSize: 16_384,
} as const;

/**
 * How long a connection may be idle at least, in ms, and at most twice as long: longer than proxies keep
 * one that they do not use, so that it is they who close it.
 */
export const IDLE_MS = 75_000;

/** How long the program may take to stop, in ms: in all, and waiting for clients. */
export const STOPPING = { totalMs: 10_000, clientsMs: 8_000 } as const;

/** Connections that wait to be accepted; Node's 511 are too few for a thousand that come at once. */
const BACKLOG = 4096;

/** How long a connection may be idle while the server stops: a request may be on its way. */
const STOPPING_IDLE_MS = 500;

/** What node:http says of a request that it could not read. */
const FAILURES: ReadonlyMap<unknown, Failure> = new Map([
  ['HPE_HEADER_OVERFLOW', failures.headersTooLarge],
  ['HPE_CHUNK_EXTENSIONS_OVERFLOW', failures.chunkExtensions],
  ['ERR_HTTP_REQUEST_TIMEOUT', failures.timeout],
]);

export function createListener(listenerOptions: ListenerOptions): Listener {
  const { handler, maxConnections, tls } = listenerOptions;
  const report = limitRate(listenerOptions.report);
  // node:http answers a request without Host with no body.
  const options = { ...CONNECTION_LIMITS, requireHostHeader: false };
  const server = tls
    ? createTlsServer({ ...options, ...tls, allowHalfOpen: true })
    : createServer(options);
  server.maxConnections = maxConnections;
  // Otherwise node:http drops the header lines that follow the first thousand.
  server.maxHeadersCount = 0;
  // Otherwise a client that closes its sending side after the request gets no answer (Node 20-26).
  Object.assign(server, { httpAllowHalfOpen: true });

  /** The last response of each connection that is open; none if nothing has been requested yet. */
  const responses = new Map<Duplex, ServerResponse | undefined>();
  /** The connections that were idle when that was checked last, and how much each had sent by then. */
  let idle = new Map<Duplex, number>();
  /** The connections that sent what could not be read. */
  const broken = new WeakSet<Duplex>();
  let stopping = false;
  const idleCheck = setInterval(checkIdle, IDLE_MS).unref();

  /** Says whether a request may go on to the handler. */
  function begin(req: IncomingMessage, res: ServerResponse): boolean {
    responses.set(req.socket, res);
    if (stopping) res.setHeader('Connection', 'close');
    const goesOn = req.httpVersionMajor === 1 && namesHost(req);
    if (!goesOn) refuse(req, res, failures.malformed);
    return goesOn;
  }

  server.on(tls ? 'secureConnection' : 'connection', (socket: Socket) => {
    responses.set(socket, undefined);
    socket.once('close', () => responses.delete(socket));
  });
  server.on('drop', () => {
    report(`overloaded: ${maxConnections} connections are open, more are closed at once`);
  });
  server.on('request', (req, res) => {
    if (begin(req, res)) handler(req, res);
  });
  server.on('checkContinue', (req, res) => {
    if (!begin(req, res)) return;
    // node:http finds it among other expectations, too.
    if (req.headers.expect?.toLowerCase() !== '100-continue') {
      refuse(req, res, failures.expectation);
      return;
    }
    // The handler reads a body only when all that the head tells is right.
    req.once('resume', () => {
      if (!res.headersSent) res.writeContinue();
    });
    handler(req, res);
  });
  server.on('checkExpectation', (req, res) => {
    if (begin(req, res)) refuse(req, res, failures.expectation);
  });
  server.on('connect', (_req, socket) => {
    // node:http does not look after this connection any more.
    socket.on('error', () => undefined).resume();
    endWith(socket, failures.method);
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    // It comes again with all that follows on the connection.
    if (broken.has(socket)) return;
    broken.add(socket);
    const res = responses.get(socket);
    const failure = FAILURES.get(error.code) ?? failures.malformed;
    // A TLS handshake that failed.
    if (!responses.has(socket)) socket.destroy();
    else if (!res || res.writableFinished) endWith(socket, failure);
    // Garbage after a whole request: that request gets its own answer first.
    else if (res.req.complete) res.once('close', () => endWith(socket, failure));
    else if (!res.headersSent) endWith(socket, failure);
    else endGently(socket);
  });

  return {
    listen(host, port) {
      return new Promise((resolve, reject) => {
        server.once('error', onError);
        function onError(cause: Error): void {
          const message = `cannot listen on ${host}, port ${port}: ${reasonOf(cause)}`;
          reject(new Error(message, { cause }));
        }
        server.listen({ host, port, backlog: BACKLOG }, () => {
          server.off('error', onError);
          resolve(urlOf(server.address() as AddressInfo, tls !== undefined));
        });
      });
    },

    stop(timeoutMs) {
      stopping = true;
      for (const res of responses.values())
        if (res && !res.headersSent) res.setHeader('Connection', 'close');
      return new Promise((resolve) => {
        // Immediates run once what has already arrived has been read.
        const sweep = setInterval(() => setImmediate(closeIdle), STOPPING_IDLE_MS);
        const deadline = setTimeout(done, timeoutMs);
        function done(): void {
          clearInterval(idleCheck);
          clearInterval(sweep);
          clearTimeout(deadline);
          for (const socket of responses.keys()) socket.destroy();
          resolve();
        }
        // http's own close also cuts off idle connections, at once and with requests on their way.
        NetServer.prototype.close.call(server, done);
      });
    },
  };

  function closeIdle(): void {
    for (const socket of idleConnections()) socket.destroy();
  }

  function* idleConnections(): Generator<Duplex> {
    for (const [socket, res] of responses)
      if (!res || (res.writableFinished && res.req.complete)) yield socket;
  }

  /** Closes connections that have been idle, and have sent nothing, since the last check. */
  function checkIdle(): void {
    const before = idle;
    idle = new Map();
    for (const socket of idleConnections()) {
      const { bytesRead } = socket as Duplex & Pick<Socket, 'bytesRead'>;
      if (before.get(socket) === bytesRead) socket.destroy();
      else idle.set(socket, bytesRead);
    }
  }
}

const HOST = 'host';

/** What RFC 3986, section 3.2.2 and 3.2.3, leaves for a host and a port. */
const HOST_VALUE = /^[\w.~:[\]!$&'()*+,;=%-]*$/;

/** RFC 9112, section 3.2: one Host that could be one, and it may be missing only in HTTP/1.0. */
function namesHost({ httpVersion, rawHeaders }: IncomingMessage): boolean {
  let hosts = 0;
  for (let i = 0; i < rawHeaders.length; i += 2)
    if (rawHeaders[i]?.length === HOST.length && rawHeaders[i]?.toLowerCase() === HOST) {
      if (!HOST_VALUE.test(rawHeaders[i + 1] as string)) return false;
      hosts++;
    }
  return hosts === 1 || (hosts === 0 && httpVersion === '1.0');
}

/** Answers without a response: the request was not well-formed enough to get one. */
function endWith(socket: Duplex, { status, headers, body }: Failure): void {
  const lines = Object.entries({
    ...headers,
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    Connection: 'close',
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  endGently(socket, `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${body}`);
}

/** Ends a connection, and reads on for a while: a reset would take the answer from the client. */
function endGently(socket: Duplex, lastBytes = ''): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  socket.end(lastBytes);
  const timer = setTimeout(() => socket.destroy(), DISCARD.timeoutMs);
  socket.once('close', () => clearTimeout(timer));
}

function urlOf({ address, family, port }: AddressInfo, secure: boolean): string {
  const host = family === 'IPv6' ? `[${address}]` : address;
  return `${secure ? 'https' : 'http'}://${host}:${port}`;
}
