import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';

import { bind } from './bind.js';
import { METRICS_TYPE, startMetrics, type Gauges, type Metrics } from './metrics.js';

/** What the monitor watches while the program serves. */
export interface Watched {
  readonly gauges: () => Promise<Gauges>;
  /** Rejects if the store cannot store plants at the moment. */
  readonly check: () => Promise<void>;
  /** Aborted when the program begins to stop. */
  readonly stop: AbortSignal;
}

/** A server on a port of its own that reports the state of the program until the process ends. */
export interface Monitor {
  readonly url: string;
  /** Returns a handler that does the same as the given one, and measures its requests. */
  readonly measure: Metrics['measure'];
  /** To be called when the program begins to serve. */
  watch(watched: Watched): void;
}

/**
 * Each connection carries one request, and is closed after `connectionMs`: later than Prometheus gives up by
 * default (10 s).
 */
export const MONITOR_LIMITS = { maxConnections: 100, connectionMs: 15_000 } as const;

/** @throws Error if the monitor cannot listen on its host and port. */
export async function startMonitor(host: string, port: number): Promise<Monitor> {
  const metrics = startMetrics();
  let watched: Watched | undefined;

  const pages = new Map<string, (res: ServerResponse) => unknown>([
    ['/livez', (res: ServerResponse) => sendPage(res, 200, 'ok')],
    ['/readyz', sendReadiness],
    ['/metrics', sendMetrics],
  ]);

  async function sendReadiness(res: ServerResponse): Promise<void> {
    const state = await readiness();
    sendPage(res, state === 'ok' ? 200 : 503, state);
  }

  async function readiness(): Promise<'ok' | 'starting' | 'stopping' | 'unavailable'> {
    if (!watched) return 'starting';
    const { check, stop } = watched;
    const state = await check().then(
      () => 'ok' as const,
      () => 'unavailable' as const,
    );
    // The program may have begun to stop meanwhile.
    return stop.aborted ? 'stopping' : state;
  }

  async function sendMetrics(res: ServerResponse): Promise<void> {
    sendPage(res, 200, metrics.render(await watched?.gauges()), { 'Content-Type': METRICS_TYPE });
  }

  function answer(req: IncomingMessage, res: ServerResponse): void {
    const path = String(req.url).replace(/\?.*/, '');
    const page = pages.get(path);
    if (page) page(res);
    else sendPage(res, 404, 'not found');
  }

  const server = createServer(answer).on('checkExpectation', answer);
  // node:http itself responds to further requests on a connection, so no page is created for them.
  server.maxRequestsPerSocket = 1;
  server.maxConnections = MONITOR_LIMITS.maxConnections;
  server.on('connection', (socket) => {
    const timer = setTimeout(() => socket.destroy(), MONITOR_LIMITS.connectionMs).unref();
    socket.unref().once('close', () => clearTimeout(timer));
  });

  const url = await bind(server, { host, port }, 'PLANT_STORE_MONITOR_');
  // It is never closed, so neither it nor its connections may keep the process alive.
  server.unref();

  return {
    url,
    measure: metrics.measure,
    watch(serving) {
      watched = serving;
    },
  };
}

function sendPage(
  res: ServerResponse,
  status: number,
  body: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  res.writeHead(status, {
    'Content-Type': 'text/plain; charset=utf-8',
    'Content-Length': Buffer.byteLength(body),
    Connection: 'close',
    ...headers,
  });
  res.end(body);
}
