import type { Server } from 'node:http';
import { Server as NetServer } from 'node:net';

import { failures } from '../../http/failures.js';
import { sendFailure } from '../../http/respond.js';
import type { Connection, Connections } from './connections.js';

/**
 * The times of {@link stopServer}, in milliseconds. Together they are less than SHUTDOWN_MS, which
 * leaves time to close the store. Tests replace them.
 */
export const STOP_TIMES = {
  /** How long requests in flight may take to get their responses. */
  requestsMs: 8_000,
  /** How long sending 503 to the remaining requests may take. */
  lastResponsesMs: 500,
  /** How long a connection may be idle: a request may be on its way. */
  idleMs: 500,
} as const;

/**
 * Stops a server in stages:
 *
 * 1. At once, it stops listening, and the latest request of each connection becomes the last one.
 *    A connection is closed after its response.
 * 2. From then on, a connection without a request is closed once it has been idle for one to two
 *    `idleMs`.
 * 3. After `requestsMs`, each request that has no response yet gets a 503.
 * 4. After another `lastResponsesMs`, the remaining connections are destroyed.
 *
 * Resolves once no connection is left, or after the last stage.
 */
export function stopServer(server: Server, connections: Connections): Promise<void> {
  const { requestsMs, lastResponsesMs, idleMs } = STOP_TIMES;
  connections.finish();
  const closeIdle = idleCloser(connections);
  closeIdle();
  return new Promise((resolve) => {
    const timers = [
      // An immediate runs after everything that has arrived has been read.
      setInterval(() => setImmediate(closeIdle), idleMs),
      setTimeout(refuseUnanswered, requestsMs, connections),
      setTimeout(finish, requestsMs + lastResponsesMs),
    ];
    function finish(): void {
      for (const timer of timers) clearTimeout(timer);
      server.closeAllConnections();
      resolve();
    }
    // Not `server.close`, which destroys idle connections at once, even with a request on its way
    // (Node 20-26).
    NetServer.prototype.close.call(server, finish);
  });
}

function refuseUnanswered(connections: Connections): void {
  for (const res of connections.unanswered()) void sendFailure(res.req, res, failures.unavailable);
}

/**
 * Returns a function that closes each connection that is idle, and was idle at the previous call.
 * Not node:http's `closeIdleConnections`: it keeps connections that have not sent a request yet
 * (Node 20-24), or closes them at once (Node 26).
 */
function idleCloser(connections: Iterable<Connection>): () => void {
  const idle = new WeakSet<Connection>();
  return () => {
    for (const connection of connections) {
      if (connection.latest) continue;
      if (idle.has(connection)) connection.socket.destroy();
      idle.add(connection);
    }
  };
}
