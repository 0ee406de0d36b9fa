import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { Server as NetServer } from 'node:net';
import type { Duplex } from 'node:stream';
import { promisify } from 'node:util';

import { failures, type Failure } from '../../http/failures.js';
import { MAX_HEADER_LINES } from '../../http/limits.js';
import { sendFailure } from '../../http/respond.js';
import { limitRate } from '../../report.js';
import type { TlsMaterial } from '../settings/files.js';
import type { Address } from '../settings/rules.js';
import { bind } from './bind.js';
import { endAfterEarlier } from './end-connection.js';

export type Handler = (req: IncomingMessage, res: ServerResponse) => Promise<void>;

export interface PlantServerOptions {
  readonly handler: Handler;
  readonly maxConnections: number;
  /** How long a connection is kept at least after a response, in milliseconds. */
  readonly keepAliveMs: number;
  /** Serve HTTPS with this certificate and key. */
  readonly tls?: TlsMaterial | undefined;
}

/** A node:http or node:https server with limits. The body of every error response is an `ErrorBody`. */
export interface PlantServer {
  /** Resolves to the URL of the server once it listens. */
  listen(address: Address): Promise<string>;
  /** Uses another certificate and key for new connections. */
  renewTls(tls: TlsMaterial): void;
  /** How many connections are open, and how many so far were closed on arrival because of the limit. */
  connections(): Promise<{ readonly open: number; readonly dropped: number }>;
  /**
   * Accepts no more connections. Closes each open one after its next response, or after one to two `idleMs` of
   * {@link STOP_TIMES} without a request. After `timeoutMs`, the latest request of each is answered with 503 if it has
   * no answer yet, and after another `lastResponsesMs`, what is left is destroyed. Resolves once all are closed, or
   * then.
   */
  stop(timeoutMs: number): Promise<void>;
}

/**
 * The times of {@link PlantServer.stop}, in milliseconds: together less than SHUTDOWN_MS, to close the store in time.
 */
export const STOP_TIMES = {
  /** For the requests in flight. */
  requestsMs: 8_000,
  /** To send 503 to the requests that remain. */
  lastResponsesMs: 500,
  /** How long a connection may be idle meanwhile: a request may be on its way. */
  idleMs: 500,
} as const;

/** The limits of a connection, in milliseconds and bytes. */
export const CONNECTION_LIMITS = {
  /** A stop cannot end a handshake, so this must not be longer. Node's default is two minutes. */
  handshakeTimeout: STOP_TIMES.requestsMs,
  /** For a head, from its first byte; for the first head on a connection, from when that was accepted. */
  headersTimeout: 10_000,
  /** For a whole request: longer than the handler allows for a body, so that the handler responds first. */
  requestTimeout: 60_000,
  connectionsCheckingInterval: 1_000,
  /** Half of node:http's default: every client can make each connection hold this much. */
  maxHeaderSize: 8_192,
} as const;

/** An open connection. */
interface Connection {
  /** The latest response, while it is in flight. */
  latest: ServerResponse | undefined;
  /** Set once {@link endAfterEarlier} ends the connection: no request is handled any more. */
  isEnding: boolean;
  /** How many requests have been passed to the handler. */
  requests: number;
}

/** The failures for errors of node:http's parser, by their codes. */
const PARSER_FAILURES: ReadonlyMap<unknown, Failure> = new Map([
  ['HPE_HEADER_OVERFLOW', failures.headersTooLarge],
  ['HPE_CHUNK_EXTENSIONS_OVERFLOW', failures.chunkExtensions],
  ['ERR_HTTP_REQUEST_TIMEOUT', failures.timeout],
]);

export function createPlantServer({
  handler,
  maxConnections,
  keepAliveMs,
  tls,
}: PlantServerOptions): PlantServer {
  const report = limitRate();
  const options = {
    ...CONNECTION_LIMITS,
    keepAliveTimeout: keepAliveMs,
    // node:http would answer a request without Host with an empty body.
    requireHostHeader: false,
  };
  const tlsServer = tls && createTlsServer({ ...options, ...tls });
  const server = tlsServer ?? createServer(options);
  server.maxConnections = maxConnections;
  // One more than the handler accepts, so that it notices if there are too many.
  server.maxHeadersCount = MAX_HEADER_LINES + 1;
  // Otherwise a client that closes its sending side after the request gets no answer (Node 20-26).
  Object.assign(server, { httpAllowHalfOpen: true });

  const connections = new Map<Duplex, Connection>();
  let closing = false;
  let dropped = 0;

  server.on(tls ? 'secureConnection' : 'connection', (socket: Duplex) => {
    // As node:http does by itself, node:https not. Before, a client that ended the connection during the handshake
    // would keep it open until `handshakeTimeout`.
    socket.allowHalfOpen = true;
    connections.set(socket, { latest: undefined, isEnding: false, requests: 0 });
    socket.once('close', () => connections.delete(socket));
  });

  function handle(req: IncomingMessage, res: ServerResponse): void {
    const connection = connections.get(req.socket);
    // RFC 9112, section 9.6: nothing is processed behind the last response of a connection, nor once its end has begun.
    const isBehindLast = connection?.latest?.getHeader('connection') === 'close';
    if (!connection || connection.isEnding || isBehindLast || !req.socket.writable) return;
    connection.latest = res;
    connection.requests++;
    // An idle connection holds no request in memory.
    res.on('close', () => {
      if (connection.latest === res) connection.latest = undefined;
    });
    if (closing) res.setHeader('Connection', 'close');
    void handler(req, res);
  }

  server.on('drop', () => {
    dropped++;
    report(
      `overloaded: ${maxConnections} connections are open (PLANT_STORE_MAX_CONNECTIONS), more are closed at once`,
    );
  });
  server.on('request', handle);
  server.on('checkExpectation', handle);
  server.on('checkContinue', (req, res) => {
    // The handler resumes the request to read its body, or, behind the head of a failure, to drain it.
    req.once('resume', () => {
      if (!res.headersSent) res.writeContinue();
    });
    handle(req, res);
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const connection = connections.get(socket);
    // Without a connection, the TLS handshake has failed. HPE_PAUSED: bytes are lost, because TLS records have reached
    // the parser while node:http had paused it, as too many responses are unsent (Node 20-26).
    if (!connection || error.code === 'HPE_PAUSED') {
      socket.destroy();
      return;
    }
    const failure = PARSER_FAILURES.get(error.code) ?? failures.malformed;
    if (failure === failures.timeout) endIfStillLate(socket, connection);
    else end(socket, connection, failure);
  });

  function end(socket: Duplex, connection: Connection, failure: Failure): void {
    // node:http may report a connection again: when the client ends it, or its time is up.
    if (connection.isEnding) return;
    connection.isEnding = true;
    endAfterEarlier(socket, connection.latest, failure);
  }

  /**
   * Ends a connection with a 408 unless the late request arrives by the end of the turn. After a pause of the process
   * (SIGSTOP, a suspended machine), node:http checks the time before it reads what had arrived.
   */
  function endIfStillLate(socket: Duplex, connection: Connection): void {
    const { requests, latest } = connection;
    // If all of the latest request is here, the head of the next one is late.
    const incomplete = latest?.req.complete ? undefined : latest?.req;
    setImmediate(() => {
      const hasArrived = incomplete ? incomplete.complete : connection.requests > requests;
      if (!hasArrived) end(socket, connection, failures.timeout);
    });
  }

  /** The latest response of each connection, if it has not begun. */
  function* unanswered(): Iterable<ServerResponse> {
    for (const { latest } of connections.values()) if (latest && !latest.headersSent) yield latest;
  }

  return {
    listen: (address) => bind(server, address, 'PLANT_STORE_'),

    renewTls: (renewed) => tlsServer?.setSecureContext(renewed),

    async connections() {
      return { open: await promisify(server.getConnections.bind(server))(), dropped };
    },

    stop(timeoutMs) {
      closing = true;
      for (const res of unanswered()) res.setHeader('Connection', 'close');
      const idle = new WeakSet<Duplex>();
      // `closeIdleConnections` keeps connections that have not sent a request yet (Node 20-24), or closes them at once
      // (Node 26).
      function closeIdle(): void {
        for (const [socket, { latest }] of connections) {
          if (latest) continue;
          if (idle.has(socket)) socket.destroy();
          idle.add(socket);
        }
      }
      closeIdle();
      return new Promise((resolve) => {
        const timers = [
          // An immediate runs after everything that has arrived has been read.
          setInterval(() => setImmediate(closeIdle), STOP_TIMES.idleMs),
          setTimeout(() => {
            for (const res of unanswered()) void sendFailure(res.req, res, failures.unavailable);
          }, timeoutMs),
          setTimeout(done, timeoutMs + STOP_TIMES.lastResponsesMs),
        ];
        function done(): void {
          for (const timer of timers) clearTimeout(timer);
          server.closeAllConnections();
          resolve();
        }
        // Not `server.close`, which destroys idle connections at once, even with a request on its way (Node 20-26).
        NetServer.prototype.close.call(server, done);
      });
    },
  };
}
