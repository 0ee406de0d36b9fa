import { subscribe } from 'node:diagnostics_channel';

import type { CommitMessage } from '../../channels.js';
import type { ResponseMessage } from '../../http/published.js';
import type { PlantLog } from '../../log/log.js';
import { VERSION } from '../version.js';
import type { Handler } from './http-server.js';

/**
 * The values that are read from the server, the handler and the log at each scrape, once the
 * program serves (`commands/serve.ts`).
 */
export interface Gauges {
  /** Connections that are open, and those that were closed on arrival because of the limit. */
  readonly open: number;
  readonly dropped: number;
  readonly maxConnections: number;
  /** The memory reserved for requests, in bytes. */
  readonly bufferedBytes: number;
  readonly maxBufferedBytes: number;
  /** The log, if plants are kept in one. */
  readonly log?: Pick<PlantLog, 'size' | 'bytes'> | undefined;
}

/** The media type of Prometheus' text format. */
export const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** The upper bounds of the buckets of a histogram, in seconds. */
const BUCKETS = [...Array.from({ length: 15 }, (_, n) => 0.0005 * 2 ** n), Infinity];

/** The description of each metric. Its type follows from its name: {@link typeOf}. */
const HELP = {
  plant_store_http_requests_in_flight: 'Requests whose response is not decided',
  plant_store_http_responses_total: 'Responses, by status and error; a 200 has the error 0',
  plant_store_http_request_duration_seconds:
    'Time from the head of a request until its response is decided, by the status of the response',
  plant_store_commit_duration_seconds:
    'Time that a commit took, which stores one batch of plants or fails',
  plant_store_commit_failures_total: 'Commits that did not store all of their plants',
  plant_store_plants_stored_total: 'New plants that were stored',
  plant_store_buffered_bytes: 'Memory reserved for requests',
  plant_store_buffered_bytes_limit: 'Memory that may be reserved for requests',
  plant_store_connections: 'Open connections',
  plant_store_connections_limit: 'Connections that may be open',
  plant_store_connections_dropped_total:
    'Connections that were closed at once, because there were too many',
  plant_store_log_plants: 'Plants in the log; absent with a database',
  plant_store_log_size_bytes: 'Size of the log; absent with a database',
  plant_store_build_info: 'Always 1, with the version of plant-store and that of node',
  process_cpu_seconds_total: 'Processor time of the process',
  process_resident_memory_bytes: 'Resident memory of the process',
  process_start_time_seconds: 'When the process started, since the Unix epoch',
  nodejs_heap_size_used_bytes: 'Used memory of the heap of V8',
  nodejs_eventloop_time_seconds_total: 'Time of the event loop, by state: active or idle',
};

type MetricName = keyof typeof HELP;
const METRIC_NAMES = Object.keys(HELP) as MetricName[];

/**
 * One number, or samples, or nothing. `suffix` is what follows the name of the metric, including
 * its labels: `_sum{status="200"}`.
 */
type Values = number | Iterable<Sample> | undefined;
type Sample = readonly [suffix: string, value: number];

export interface Metrics {
  /** Returns a handler that does the same as the given one, and measures its requests. */
  readonly measure: (handler: Handler) => Handler;
  /** Writes all metrics in Prometheus' text format; without `gauges`, all but these. */
  readonly render: (gauges: Gauges | undefined) => string;
}

/** Counts and measures requests, responses and commits from now on. */
export function startMetrics(): Metrics {
  // All begin at 0: a counter that appears with its first event has no rate until the second one.
  const responses = new Map([
    [labelsOf(200, 0), 0],
    [labelsOf(500, 500), 0],
    [labelsOf(503, 503), 0],
  ]);
  /** By status. */
  const requestTimes = new Map([200, 500, 503].map((status) => [status, createHistogram()]));
  const commitTimes = createHistogram();
  let commitFailures = 0;
  let plantsStored = 0;
  /** The requests whose response is not decided, each with the time at which it began. */
  const inFlight = new Map<unknown, number>();

  subscribe('plant-store:response', (message) => {
    const { request, status, error } = message as ResponseMessage;
    const labels = labelsOf(status, error);
    responses.set(labels, (responses.get(labels) ?? 0) + 1);
    const startedAt = inFlight.get(request);
    if (startedAt === undefined) return;
    inFlight.delete(request);
    let times = requestTimes.get(status);
    if (!times) requestTimes.set(status, (times = createHistogram()));
    times.observe(performance.now() - startedAt);
  });
  subscribe('plant-store:commit', (message) => {
    const { plants, durationMs, error } = message as CommitMessage;
    plantsStored += plants;
    commitTimes.observe(durationMs);
    if (error !== undefined) commitFailures++;
  });

  function valuesOf(gauges: Gauges | undefined): Record<MetricName, Values> {
    const times = Array.from(requestTimes, ([status, each]) => each.samples(`status="${status}"`));
    const build = `{version="${VERSION}",node="${process.versions.node}"}`;
    const cpu = process.cpuUsage();
    const { rss, heapUsed } = process.memoryUsage();
    const { active, idle } = performance.eventLoopUtilization();
    return {
      plant_store_http_requests_in_flight: inFlight.size,
      plant_store_http_responses_total: responses,
      plant_store_http_request_duration_seconds: times.flatMap((samples) => [...samples]),
      plant_store_commit_duration_seconds: commitTimes.samples(),
      plant_store_commit_failures_total: commitFailures,
      plant_store_plants_stored_total: plantsStored,
      plant_store_buffered_bytes: gauges?.bufferedBytes,
      plant_store_buffered_bytes_limit: gauges?.maxBufferedBytes,
      plant_store_connections: gauges?.open,
      plant_store_connections_limit: gauges?.maxConnections,
      plant_store_connections_dropped_total: gauges?.dropped,
      plant_store_log_plants: gauges?.log?.size,
      plant_store_log_size_bytes: gauges?.log?.bytes,
      plant_store_build_info: [[build, 1]],
      process_cpu_seconds_total: (cpu.user + cpu.system) / 1e6,
      process_resident_memory_bytes: rss,
      process_start_time_seconds: performance.timeOrigin / 1e3,
      nodejs_heap_size_used_bytes: heapUsed,
      nodejs_eventloop_time_seconds_total: [
        ['{state="active"}', active / 1e3],
        ['{state="idle"}', idle / 1e3],
      ],
    };
  }

  return {
    measure: (handler) => (req, res) => {
      inFlight.set(req, performance.now());
      const handled = handler(req, res);
      // Not every request gets a response.
      void handled.then(() => inFlight.delete(req));
      return handled;
    },
    render(gauges) {
      const values = valuesOf(gauges);
      return METRIC_NAMES.map((name) => textOf(name, values[name])).join('');
    },
  };
}

function labelsOf(status: number, error: number): string {
  return `{status="${status}",error="${error}"}`;
}

function textOf(name: MetricName, values: Values): string {
  if (values === undefined) return '';
  const samples = typeof values === 'number' ? [['', values] as const] : [...values];
  const lines = samples.map(([suffix, value]) => `${name}${suffix} ${value}\n`);
  return `# HELP ${name} ${HELP[name]}.\n# TYPE ${name} ${typeOf(name)}\n${lines.join('')}`;
}

function typeOf(name: MetricName): string {
  if (name.endsWith('_total')) return 'counter';
  return name.endsWith('_duration_seconds') ? 'histogram' : 'gauge';
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
    /**
     * The samples. A `label`, such as `status="200"`, is the only one of `_sum` and `_count`, and
     * precedes `le` in a bucket.
     */
    *samples(label?: string): Generator<Sample> {
      const inBucket = label === undefined ? '' : `${label},`;
      const alone = label === undefined ? '' : `{${label}}`;
      let count = 0;
      for (const bucket of buckets) {
        count += bucket.count;
        const bound = bucket.bound === Infinity ? '+Inf' : bucket.bound;
        yield [`_bucket{${inBucket}le="${bound}"}`, count];
      }
      yield [`_sum${alone}`, sum];
      yield [`_count${alone}`, count];
    },
  };
}
