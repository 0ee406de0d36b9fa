import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { Server as NetServer } from 'node:net';
import type { Duplex } from 'node:stream';
import { promisify } from 'node:util';

import { failures, type Failure } from '../../http/failures.js';
import { MAX_HEADER_LINES } from '../../http/limits.js';
import { sendFailure } from '../../http/respond.js';
import { limitRate, type Report } from '../../report.js';
import type { TlsMaterial } from '../settings/files.js';
import { bind, type Address } from './bind.js';
import { endInTurn } from './end-connection.js';

export interface PlantServerOptions {
  readonly handler: (req: IncomingMessage, res: ServerResponse) => Promise<void>;
  readonly maxConnections: number;
  /** How long an idle connection is kept at least, in milliseconds. */
  readonly keepAliveMs: number;
  /** Serve HTTPS with this certificate and key. */
  readonly tls?: TlsMaterial | undefined;
  /** Called when there are too many connections. Default: `console.error`. */
  readonly report?: Report;
}

/** A node:http or node:https server with limits. The body of every error response is an `ErrorBody`. */
export interface PlantServer {
  /** Resolves to the URL of the server once it listens. */
  listen(address: Address): Promise<string>;
  /** Uses another certificate and key for new connections. */
  renewTls(tls: TlsMaterial): void;
  /** How many connections are open, and how many were closed at once so far because of the limit. */
  connections(): Promise<{ readonly open: number; readonly dropped: number }>;
  /**
   * Accepts no more connections, and closes each one after its next response, or once it has been idle for
   * {@link STOP_TIMES}`.idleMs`, or at most twice as long (TLS handshakes may take longer). After `timeoutMs` the
   * latest request of each remaining connection is answered with 503, and after another `lastResponsesMs` these
   * connections are destroyed. Resolves once all connections are closed, or by then.
   */
  stop(timeoutMs: number): Promise<void>;
}

/** The times of {@link PlantServer.stop}, in milliseconds. */
export const STOP_TIMES = {
  /** For the requests in flight. */
  clientsMs: 8_000,
  /** To send 503 to the requests that remain. */
  lastResponsesMs: 500,
  /** How long a connection may be idle meanwhile: a request may be on its way. */
  idleMs: 500,
} as const;

/** The limits of a connection, in milliseconds and bytes. */
export const CONNECTION_LIMITS = {
  /** As for a head. With Node's default of two minutes, silent clients would hold their connections for longer. */
  handshakeTimeout: 10_000,
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
  /** The connection ends with a failure that is not a response of node:http. */
  isEnding: boolean;
  /** Called when a response is closed. One that was kept would hold its request in memory. */
  readonly onClose: (this: ServerResponse) => void;
}

/** The failures for errors of node:http's parser, by their codes. */
const FAILURES: ReadonlyMap<unknown, Failure> = new Map([
  ['HPE_HEADER_OVERFLOW', failures.headersTooLarge],
  ['HPE_CHUNK_EXTENSIONS_OVERFLOW', failures.chunkExtensions],
  ['ERR_HTTP_REQUEST_TIMEOUT', failures.timeout],
]);

export function createPlantServer(serverOptions: PlantServerOptions): PlantServer {
  const { handler, maxConnections, keepAliveMs, tls } = serverOptions;
  const report = limitRate(serverOptions.report);
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
  // Not before the handshake is complete: if the client ended the connection during the handshake, it would
  // stay open for `handshakeTimeout`.
  tlsServer?.on('secureConnection', (socket) => (socket.allowHalfOpen = true));

  const connections = new Map<Duplex, Connection>();
  let closing = false;
  let dropped = 0;

  server.on(tls ? 'secureConnection' : 'connection', (socket: Duplex) => {
    const connection: Connection = {
      latest: undefined,
      isEnding: false,
      onClose() {
        if (connection.latest === this) connection.latest = undefined;
      },
    };
    connections.set(socket, connection);
    socket.once('close', () => connections.delete(socket));
  });

  function handle(req: IncomingMessage, res: ServerResponse): void {
    const connection = connections.get(req.socket);
    // RFC 9112, section 9.6: nothing behind the last response of a connection is processed.
    if (!connection || connection.isEnding || !req.socket.writable || isLast(connection.latest))
      return;
    connection.latest = res;
    res.on('close', connection.onClose);
    if (closing) res.setHeader('Connection', 'close');
    void handler(req, res);
  }

  /** The latest response of each connection, if it has not begun. */
  function* unanswered(): Iterable<ServerResponse> {
    for (const { latest } of connections.values()) if (latest && !latest.headersSent) yield latest;
  }

  server.on('drop', () => {
    dropped++;
    const setting = 'PLANT_STORE_MAX_CONNECTIONS';
    report(
      `overloaded: ${maxConnections} connections are open (${setting}), more are closed at once`,
    );
  });
  server.on('request', handle);
  server.on('checkExpectation', handle);
  server.on('checkContinue', (req, res) => {
    // The handler reads the body only if the head is valid.
    req.once('resume', () => {
      if (!res.headersSent) res.writeContinue();
    });
    handle(req, res);
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const connection = connections.get(socket);
    // A TLS handshake has failed, or bytes are lost: node:http has paused its parser because too many responses
    // are unsent, and TLS records that are decrypted by then reach it all the same (Node 20-26).
    if (!connection || error.code === 'HPE_PAUSED') socket.destroy();
    // node:http may report a connection again: when the client ends it, or its time is up.
    else if (!connection.isEnding) {
      connection.isEnding = true;
      endInTurn(socket, connection.latest, FAILURES.get(error.code) ?? failures.malformed);
    }
  });

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
      // That of node:http would not close connections without a request (Node 20-24), or close them at once (Node 26).
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
        // That of node:http would destroy idle connections at once, even with a request on its way (Node 20-26).
        NetServer.prototype.close.call(server, done);
      });
    },
  };
}

/** Whether a response is the last one of its connection. */
function isLast(res: ServerResponse | undefined): boolean {
  return res?.getHeader('connection') === 'close';
}
