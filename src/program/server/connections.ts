import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

import type { Failure } from '../../http/failures.js';
import { endAfterEarlierResponses } from './end-connection.js';

/** An open connection. It is idle if it has no `latestResponse`. */
export interface Connection {
  readonly socket: Socket;
  /** The latest response until it is sent: an idle connection holds no request in memory. */
  latestResponse: ServerResponse | undefined;
  /**
   * When the connection was opened, or when its latest response was sent if there was one, as
   * `performance.now()`.
   */
  idleSince: number;
  /**
   * How many bytes had been read from the connection at `idleSince`. If an idle connection has read
   * more, the head of a request has begun to arrive, or empty lines before one (RFC 9112, section
   * 2.2).
   */
  bytesAtIdle: number;
  /** How many requests have been accepted. */
  requests: number;
  /** Whether {@link Connections.end} was called. */
  isEnding: boolean;
}

/**
 * The open connections of a server. They enforce which request is the last one of its connection:
 * no later request is handled (RFC 9112, section 9.6). A request is the last one if
 *
 * - its response has `Connection: close`, which the handler or {@link Connections.finish} sets;
 * - a failure ends the connection after it: {@link Connections.end};
 * - the connection is no longer writable, because such a response or failure has been sent, or
 *   because the client has closed it.
 */
export interface Connections {
  add(socket: Socket): void;
  get(socket: Duplex): Connection | undefined;
  /** Notes a request, and returns whether it is to be handled: not after the last one. */
  accept(req: IncomingMessage, res: ServerResponse): boolean;
  /** Ends a connection with a failure, after the responses to earlier requests. */
  end(connection: Connection, failure: Failure): void;
  /**
   * Closes each connection that has been idle for longer than `ms`, once everything that has
   * arrived has been read. Until {@link Connections.finish} is called, spares a connection for as
   * long as its next head may be arriving, because node:http limits the time for a head
   * (`headersTimeout`).
   */
  closeIdle(ms: number): void;
  /** The latest response of each connection, if it has not begun. */
  unanswered(): Iterable<ServerResponse>;
  /**
   * Begins to stop: the latest request of each connection becomes the last one, or the next one if
   * there is none.
   */
  finish(): void;
}

/** A connection may be idle for `headMs` longer if a head may be arriving. */
export function trackConnections(headMs: number): Connections {
  const connections = new Map<Duplex, Connection>();
  let isFinishing = false;

  function* unanswered(): Iterable<ServerResponse> {
    for (const { latestResponse } of connections.values())
      if (latestResponse && !latestResponse.headersSent) yield latestResponse;
  }

  function closeIdleNow(ms: number): void {
    const now = performance.now();
    for (const connection of connections.values()) {
      const { socket, latestResponse, idleSince, bytesAtIdle, requests } = connection;
      const idleMs = now - idleSince;
      if (latestResponse || idleMs <= ms) continue;
      // node:http limits the time for the first head, and for one that has begun to arrive, but not
      // for empty lines.
      const mayHaveBegun = socket.bytesRead > bytesAtIdle && idleMs <= ms + headMs;
      const hasLimit = requests === 0 || mayHaveBegun;
      if (isFinishing || !hasLimit) socket.destroy();
    }
  }

  return {
    add(socket) {
      const connection: Connection = {
        socket,
        latestResponse: undefined,
        idleSince: performance.now(),
        bytesAtIdle: 0,
        requests: 0,
        isEnding: false,
      };
      connections.set(socket, connection);
      socket.once('close', () => connections.delete(socket));
      // node:http calls this with `keepAliveTimeout` once all responses are sent, and with 0 when
      // the next request arrives. A timer would take 1 µs for each request (Node 24): `closeIdle`
      // closes the connection instead.
      socket.setTimeout = (ms) => {
        if (ms > 0) {
          connection.latestResponse = undefined;
          connection.idleSince = performance.now();
          connection.bytesAtIdle = socket.bytesRead;
        }
        return socket;
      };
    },
    get: (socket) => connections.get(socket),
    accept(req, res) {
      const connection = connections.get(req.socket);
      if (!connection || hasHadLast(connection)) return false;
      connection.latestResponse = res;
      connection.requests++;
      if (isFinishing) makeLast(res);
      return true;
    },
    end(connection, failure) {
      // node:http may report a connection again: when the client ends it, or its time is up.
      if (connection.isEnding) return;
      connection.isEnding = true;
      endAfterEarlierResponses(connection.socket, connection.latestResponse, failure);
    },
    closeIdle(ms) {
      // An immediate runs after everything that has arrived has been read: a connection whose next
      // request has arrived is not idle.
      setImmediate(closeIdleNow, ms);
    },
    unanswered,
    finish() {
      isFinishing = true;
      for (const res of unanswered()) makeLast(res);
    },
  };
}

/** Whether the last request of a connection has been accepted. */
function hasHadLast({ socket, latestResponse, isEnding }: Connection): boolean {
  return isEnding || latestResponse?.getHeader('connection') === 'close' || !socket.writable;
}

function makeLast(res: ServerResponse): void {
  res.setHeader('Connection', 'close');
}
