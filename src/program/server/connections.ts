import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

import type { Failure } from '../../http/failures.js';
import { endAfterEarlierResponses } from './end-connection.js';

/** An open connection. */
export interface Connection {
  readonly socket: Socket;
  /** The latest response, until it is sent: an idle connection holds no request in memory. */
  latest: ServerResponse | undefined;
  /**
   * When the latest response was sent, as `performance.now()`. `Infinity` during a request, and
   * before the first one.
   */
  idleSince: number;
  /** How many bytes of the connection had been read by then: more are the head of a request. */
  bytesAtIdle: number;
  /** How many requests have been handled. */
  requests: number;
  /** Whether a failure that is no response to a request ends the connection. */
  isEnding: boolean;
}

/**
 * The open connections of a server. This is the one place that decides which request is the last
 * one of its connection: no request behind it is handled (RFC 9112, section 9.6). A request is the
 * last one if
 *
 * - its response has `Connection: close`, which the handler sets, or {@link Connections.finish};
 * - a failure ends the connection behind it: {@link Connections.end};
 * - the connection takes no more responses, because one of these two has been sent.
 */
export interface Connections extends Iterable<Connection> {
  add(socket: Socket): void;
  get(socket: Duplex): Connection | undefined;
  /** Notes a request, and returns whether it is to be handled: false behind the last one. */
  accept(req: IncomingMessage, res: ServerResponse): boolean;
  /** Ends a connection with a failure, after the responses to earlier requests. */
  end(connection: Connection, failure: Failure): void;
  /** Closes each connection that has waited for its next request for longer than `ms`. */
  closeIdle(ms: number): void;
  /** The latest response of each connection, if it has not begun. */
  unanswered(): Iterable<ServerResponse>;
  /** Makes the latest request of each connection the last one, or the next one if there is none. */
  finish(): void;
}

export function trackConnections(): Connections {
  const connections = new Map<Duplex, Connection>();
  let isFinishing = false;

  function* unanswered(): Iterable<ServerResponse> {
    for (const { latest } of connections.values()) if (latest && !latest.headersSent) yield latest;
  }

  return {
    [Symbol.iterator]: () => connections.values(),
    add(socket) {
      const connection: Connection = {
        socket,
        latest: undefined,
        idleSince: Infinity,
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
        const isIdle = ms > 0;
        if (isIdle) connection.latest = undefined;
        connection.idleSince = isIdle ? performance.now() : Infinity;
        connection.bytesAtIdle = socket.bytesRead;
        return socket;
      };
    },
    get: (socket) => connections.get(socket),
    accept(req, res) {
      const connection = connections.get(req.socket);
      if (!connection || hasHadLast(connection)) return false;
      connection.latest = res;
      connection.requests++;
      if (isFinishing) makeLast(res);
      return true;
    },
    end(connection, failure) {
      // node:http may report a connection again: when the client ends it, or its time is up.
      if (connection.isEnding) return;
      connection.isEnding = true;
      endAfterEarlierResponses(connection.socket, connection.latest, failure);
    },
    closeIdle(ms) {
      const now = performance.now();
      for (const { socket, idleSince, bytesAtIdle } of connections.values())
        // The head of a request that has begun to arrive has a time limit of its own.
        if (now - idleSince > ms && socket.bytesRead === bytesAtIdle) socket.destroy();
    },
    unanswered,
    finish() {
      isFinishing = true;
      for (const res of unanswered()) makeLast(res);
    },
  };
}

function hasHadLast({ socket, latest, isEnding }: Connection): boolean {
  return isEnding || latest?.getHeader('connection') === 'close' || !socket.writable;
}

function makeLast(res: ServerResponse): void {
  res.setHeader('Connection', 'close');
}
