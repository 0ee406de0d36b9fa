import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';

import { bind } from './bind.js';
import type { Handler } from './http-server.js';
import { METRICS_TYPE, startMetrics, type Gauges } from './metrics.js';

/** What the monitor watches while the program serves. */
export interface Watched {
  readonly gauges: () => Promise<Gauges>;
  /** Rejects if the store cannot store plants at the moment. */
  readonly check: () => Promise<void>;
  /** Aborted when the program begins to stop. */
  readonly stop: AbortSignal;
}

/**
 * Each connection carries one request, and is closed after `connectionMs`. By default, Prometheus
 * gives up before that, after 10 s.
 */
export const MONITOR_LIMITS = { maxConnections: 100, connectionMs: 15_000 } as const;

/** A server on a port of its own that reports the state of the program. */
export interface Monitor {
  readonly url: string;
  /** Returns a handler that does the same as the given one, and measures its requests. */
  readonly measure: (handler: Handler) => Handler;
  /** To be called once the program serves. Until then, `/readyz` is `starting`. */
  readonly watch: (watched: Watched) => void;
}

/**
 * Starts the monitor, which runs until the process ends.
 *
 * @throws Error if it cannot listen on its host and port.
 */
export async function startMonitor(host: string, port: number): Promise<Monitor> {
  const metrics = startMetrics();
  let watched: Watched | undefined;

  /** The status and the content of the page at a path. */
  async function pageAt(path: string): Promise<readonly [status: number, content: string]> {
    if (path === '/livez') return [200, 'ok'];
    if (path === '/metrics') return [200, metrics.render(await watched?.gauges())];
    if (path !== '/readyz') return [404, 'not found'];
    if (!watched) return [503, 'starting'];
    const { check, stop } = watched;
    const canStore = await check().then(
      () => true,
      () => false,
    );
    // The program may have begun to stop during the check.
    if (stop.aborted) return [503, 'stopping'];
    return canStore ? [200, 'ok'] : [503, 'unavailable'];
  }

  async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const path = String(req.url).replace(/\?.*/, '');
    const [status, content] = await pageAt(path);
    res.writeHead(status, {
      'Content-Type': path === '/metrics' ? METRICS_TYPE : 'text/plain; charset=utf-8',
      'Content-Length': Buffer.byteLength(content),
      Connection: 'close',
    });
    res.end(content);
  }

  const server = createServer((req, res) => void answer(req, res));
  // node:http itself responds to further requests on a connection, so no page is created for them.
  server.maxRequestsPerSocket = 1;
  server.maxConnections = MONITOR_LIMITS.maxConnections;
  server.on('connection', (socket) => {
    const timer = setTimeout(() => socket.destroy(), MONITOR_LIMITS.connectionMs).unref();
    socket.unref().once('close', () => clearTimeout(timer));
  });

  const url = await bind(server, { host, port }, 'PLANT_STORE_MONITOR_');
  // The monitor is never closed, so neither its server nor its connections may keep the process
  // alive.
  server.unref();

  return {
    url,
    measure: metrics.measure,
    watch(serving) {
      watched = serving;
    },
  };
}
