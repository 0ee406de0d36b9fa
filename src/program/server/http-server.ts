import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { Socket } from 'node:net';
import { promisify } from 'node:util';

import { failures, type Failure } from '../../http/failures.js';
import { MAX_HEADER_LINES } from '../../http/limits.js';
import { limitRate } from '../../report.js';
import type { TlsMaterial } from '../settings/files.js';
import type { Address } from '../settings/rules.js';
import { bind } from './bind.js';
import { trackConnections, type Connection } from './connections.js';
import { STOP_TIMES, stopServer } from './stop.js';

/** Handles a request. The promise does not reject. */
export type Handler = (req: IncomingMessage, res: ServerResponse) => Promise<void>;

export interface PlantServerOptions {
  readonly handler: Handler;
  readonly maxConnections: number;
  /** How long a connection is kept at least after a response, in milliseconds. */
  readonly keepAliveMs: number;
  /** Serve HTTPS with this certificate and key. */
  readonly tls?: TlsMaterial | undefined;
}

/**
 * A node:http or node:https server with limits. The body of every error response is an `ErrorBody`.
 */
export interface PlantServer {
  /** Resolves to the URL of the server once it listens. */
  listen(address: Address): Promise<string>;
  /** Uses another certificate and key for new connections. */
  renewTls(tls: TlsMaterial): void;
  /** How many connections are open, and how many were closed on arrival because of the limit. */
  countConnections(): Promise<{ readonly open: number; readonly dropped: number }>;
  /** Stops in the stages of {@link stopServer}. */
  stop(): Promise<void>;
}

/** The limits of a connection, in milliseconds and bytes. */
export const CONNECTION_LIMITS = {
  /**
   * Not longer than a stop waits for requests, because a stop cannot end a handshake. Node's
   * default is two minutes.
   */
  handshakeTimeout: STOP_TIMES.requestsMs,
  /**
   * For a head, from its first byte. For the first head on a connection, from when the connection
   * was accepted.
   */
  headersTimeout: 10_000,
  /**
   * For a whole request: longer than the handler allows for a body, so that the handler responds
   * first.
   */
  requestTimeout: 60_000,
  connectionsCheckingInterval: 1_000,
  /** Half of node:http's default: every client can make each connection hold this much. */
  maxHeaderSize: 8_192,
} as const;

/**
 * The interval at which idle connections are closed, in milliseconds. A connection may stay open
 * for that much longer than `keepAliveMs`.
 */
const IDLE_SWEEP_MS = 1_000;

/**
 * How much longer a connection may be idle if a head may be arriving, in milliseconds. A head may
 * begin until the sweep, and node:http may find only at its second check that the head is late.
 */
export const HEAD_MS =
  IDLE_SWEEP_MS +
  CONNECTION_LIMITS.headersTimeout +
  2 * CONNECTION_LIMITS.connectionsCheckingInterval;

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
    // node:http only announces it to clients: `trackConnections` replaces `socket.setTimeout`,
    // which would start a timer.
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

  const connections = trackConnections(HEAD_MS);
  let sweep: NodeJS.Timeout | undefined;
  let dropped = 0;

  server.on(tls ? 'secureConnection' : 'connection', (socket: Socket) => {
    // node:http does this by itself, node:https does not. It must not be done before the handshake
    // is complete: a client that ended its side during the handshake would hold the connection
    // until `handshakeTimeout`.
    socket.allowHalfOpen = true;
    connections.add(socket);
  });

  function handle(req: IncomingMessage, res: ServerResponse): void {
    if (connections.accept(req, res)) void handler(req, res);
  }

  server.on('drop', () => {
    dropped++;
    report(
      `overloaded: ${maxConnections} connections are open (PLANT_STORE_MAX_CONNECTIONS), ` +
        'more are closed at once',
    );
  });
  server.on('request', handle);
  // Otherwise node:http would answer another expectation with a 417 that has no body.
  server.on('checkExpectation', handle);
  server.on('checkContinue', (req, res) => {
    // The handler resumes the request to read its body, or to drain it after the head of a failure:
    // then it is too late for a 100 Continue.
    req.once('resume', () => {
      if (!res.headersSent) res.writeContinue();
    });
    handle(req, res);
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const connection = connections.get(socket);
    const failure = PARSER_FAILURES.get(error.code) ?? failures.malformed;
    // Without a connection, the TLS handshake has failed: no response can be sent.
    if (!connection) socket.destroy();
    // TLS records have reached the parser while node:http had paused it, because too many responses
    // are unsent: the bytes in them are lost (Node 20-26).
    else if (error.code === 'HPE_PAUSED') socket.destroy();
    else if (failure === failures.timeout) endIfStillLate(connection);
    else connections.end(connection, failure);
  });

  /**
   * Ends a connection with a 408 unless the late request arrives by the end of the turn. After a
   * pause of the process (SIGSTOP, a suspended machine), node:http checks the time before it reads
   * what has arrived.
   */
  function endIfStillLate(connection: Connection): void {
    const { requests, latestResponse } = connection;
    // If the latest request is complete, the head of the next one is late.
    const lateRequest = latestResponse?.req.complete ? undefined : latestResponse?.req;
    setImmediate(() => {
      const hasArrived = lateRequest ? lateRequest.complete : connection.requests > requests;
      if (!hasArrived) connections.end(connection, failures.timeout);
    });
  }

  return {
    async listen(address) {
      const url = await bind(server, address, 'PLANT_STORE_');
      sweep = setInterval(() => connections.closeIdle(keepAliveMs), IDLE_SWEEP_MS);
      sweep.unref();
      return url;
    },

    renewTls: (renewed) => tlsServer?.setSecureContext(renewed),

    async countConnections() {
      // Not the number of those in `connections`: in a TLS handshake, a connection is open, too.
      return { open: await promisify(server.getConnections.bind(server))(), dropped };
    },

    stop() {
      clearInterval(sweep);
      return stopServer(server, connections);
    },
  };
}
