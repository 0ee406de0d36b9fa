import { subscribe } from 'node:diagnostics_channel';

import type { CommitMessage, ResponseMessage } from '../channels.js';

/** What is read for each scrape; the rest is counted as it happens. */
export interface Gauges {
  /** Connections that are open, and those that were closed at once because of the limit. */
  readonly open: number;
  readonly dropped: number;
  readonly limit: number;
  /** The log, if plants are kept in one. */
  readonly log?: LogGauges | undefined;
}

export interface LogGauges {
  /** The number of plants. */
  readonly size: number;
  readonly bytes: number;
}

/** The media type of Prometheus' text format. */
export const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** The upper bounds of the buckets of a histogram, in seconds. */
const BUCKETS = [0.0005, ...Array.from({ length: 14 }, (_, n) => 0.001 * 2 ** n), Infinity];

/** A metric: its name and its value, or several values, each with the suffix and labels for the name. */
type Metric = readonly [
  name: string,
  type: 'counter' | 'gauge' | 'histogram',
  values: number | Iterable<readonly [suffix: string, value: number]>,
  help: string,
];

/**
 * Counts responses and commits from now on. Returns a function that writes all metrics in Prometheus' text
 * format.
 */
export function startMetrics(): (gauges: Gauges) => string {
  // A counter that appears with its first event would have no rate until the second one.
  const responses = new Map([
    [keyOf(200, 0), 0],
    [keyOf(503, 503), 0],
  ]);
  const requestTimes = createHistogram();
  const commitTimes = createHistogram();
  let commitFailures = 0;
  let plantsStored = 0;
  const startedAt = new WeakMap<object, number>();

  subscribe('http.server.request.start', (message) => {
    startedAt.set((message as { request: object }).request, performance.now());
  });
  subscribe('plant-store:response', (message) => {
    const { request, status, error } = message as ResponseMessage;
    const key = keyOf(status, error);
    responses.set(key, (responses.get(key) ?? 0) + 1);
    const start = request && startedAt.get(request);
    if (start !== undefined) requestTimes.observe(performance.now() - start);
  });
  subscribe('plant-store:commit', (message) => {
    const { plants, durationMs, error } = message as CommitMessage;
    plantsStored += plants;
    commitTimes.observe(durationMs);
    if (error !== undefined) commitFailures++;
  });

  function* metricsOf({ open, dropped, limit, log }: Gauges): Generator<Metric> {
    const request = 'plant_store_http_request_duration_seconds';
    const commit = 'plant_store_commit_duration_seconds';
    const counts = Array.from(responses, ([key, count]) => [labelsOf(key), count] as const);
    yield ['plant_store_http_responses_total', 'counter', counts, 'Responses'];
    yield [request, 'histogram', requestTimes.values(), 'From the head to the response'];
    yield [commit, 'histogram', commitTimes.values(), 'Time to store a batch, or to fail'];
    yield ['plant_store_commit_failures_total', 'counter', commitFailures, 'Failed batches'];
    yield ['plant_store_plants_stored_total', 'counter', plantsStored, 'New plants stored'];
    yield ['plant_store_connections', 'gauge', open, 'Open connections'];
    yield ['plant_store_connections_limit', 'gauge', limit, 'Maximum number of connections'];
    yield ['plant_store_connections_dropped_total', 'counter', dropped, 'Dropped connections'];
    if (log) {
      yield ['plant_store_log_plants', 'gauge', log.size, 'Plants in the log'];
      yield ['plant_store_log_size_bytes', 'gauge', log.bytes, 'Size of the log'];
    }
    const cpu = process.cpuUsage();
    const { rss, heapUsed } = process.memoryUsage();
    const { active, idle } = performance.eventLoopUtilization();
    const loop = { active: active / 1e3, idle: idle / 1e3 };
    const states = Object.entries(loop).map(([name, s]) => [`{state="${name}"}`, s] as const);
    const start = performance.timeOrigin / 1e3;
    yield ['process_cpu_seconds_total', 'counter', (cpu.user + cpu.system) / 1e6, 'CPU time'];
    yield ['process_resident_memory_bytes', 'gauge', rss, 'Resident memory'];
    yield ['process_start_time_seconds', 'gauge', start, 'Start time since the Unix epoch'];
    yield ['nodejs_heap_size_used_bytes', 'gauge', heapUsed, 'Memory used by the heap of V8'];
    yield ['nodejs_eventloop_time_seconds_total', 'counter', states, 'Time of the event loop'];
  }

  return (gauges) => [...metricsOf(gauges)].map(textOf).join('');
}

/** A number, because a string would have to be created for each response. */
function keyOf(status: number, error: number): number {
  return status * 1e3 + error;
}

function labelsOf(key: number): string {
  return `{status="${Math.floor(key / 1e3)}",error="${key % 1e3}"}`;
}

function textOf([name, type, values, help]: Metric): string {
  const all = typeof values === 'number' ? [['', values] as const] : [...values];
  const lines = all.map(([suffix, value]) => `${name}${suffix} ${value}\n`);
  return `# HELP ${name} ${help}.\n# TYPE ${name} ${type}\n${lines.join('')}`;
}

function createHistogram() {
  const buckets = BUCKETS.map((bound) => ({ bound, count: 0 }));
  let sum = 0;
  return {
    observe(ms: number): void {
      const seconds = ms / 1e3;
      sum += seconds;
      const bucket = buckets.find(({ bound }) => seconds <= bound);
      if (bucket) bucket.count++;
    },
    *values(): Generator<readonly [suffix: string, value: number]> {
      let count = 0;
      for (const bucket of buckets) {
        count += bucket.count;
        const bound = bucket.bound === Infinity ? '+Inf' : bucket.bound;
        yield [`_bucket{le="${bound}"}`, count];
      }
      yield ['_sum', sum];
      yield ['_count', count];
    },
  };
}
