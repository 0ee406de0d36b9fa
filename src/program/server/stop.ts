import type { Server } from 'node:http';
import { Server as NetServer } from 'node:net';

import { failures } from '../../http/failures.js';
import { sendFailure } from '../../http/respond.js';
import type { Connections } from './connections.js';

/**
 * The times of {@link stopServer}, in milliseconds. Together they are less than SHUTDOWN_MS, which
 * leaves time to close the store. Tests replace them.
 */
export const STOP_TIMES = {
  /** How long requests in flight may take to get their responses. */
  requestsMs: 8_000,
  /** How long sending 503 to the remaining requests may take. */
  lastResponsesMs: 500,
  /** How long a connection may wait for a request, which may be on its way. */
  idleMs: 500,
} as const;

/**
 * Stops a server in stages:
 *
 * 1. At once, it stops listening, and the latest request of each connection becomes the last one.
 *    A connection is closed after its response.
 * 2. Every `idleMs` from then on, each connection is closed that has waited longer than `idleMs`
 *    for the head of a request.
 * 3. After `requestsMs`, each request that has no response yet gets a 503.
 * 4. After another `lastResponsesMs`, the remaining connections are destroyed.
 *
 * Resolves once no connection is left, or after the last stage.
 */
export function stopServer(server: Server, connections: Connections): Promise<void> {
  const { requestsMs, lastResponsesMs, idleMs } = STOP_TIMES;
  connections.finish();
  return new Promise((resolve) => {
    const timers = [
      setInterval(() => connections.closeIdle(idleMs), idleMs),
      setTimeout(refuseUnanswered, requestsMs, connections),
      setTimeout(end, requestsMs + lastResponsesMs),
    ];
    function end(): void {
      // `clearTimeout` clears an interval, too.
      for (const timer of timers) clearTimeout(timer);
      server.closeAllConnections();
      resolve();
    }
    // Not `server.close`, which destroys idle connections at once, even with a request on its way
    // (Node 20-26).
    NetServer.prototype.close.call(server, end);
  });
}

function refuseUnanswered(connections: Connections): void {
  for (const res of connections.unanswered()) void sendFailure(res.req, res, failures.unavailable);
}
