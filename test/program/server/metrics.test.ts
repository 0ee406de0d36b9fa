import { spawnSync } from 'node:child_process';
import { channel } from 'node:diagnostics_channel';
import { readFileSync } from 'node:fs';
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';

import t from 'tap';

import { startMetrics, type Gauges } from '../../../dist/program/server/metrics.js';
import { samplesIn } from '../../helpers/metrics.js';
import { noPromtool } from '../../helpers/needs.js';

const GAUGES: Gauges = {
  ...{ open: 3, dropped: 2, maxConnections: 10 },
  ...{ bufferedBytes: 5, maxBufferedBytes: 20 },
  log: { size: 7, bytes: 430 },
};
const { measure, render } = startMetrics();
const responses = channel('plant-store:response');
const commits = channel('plant-store:commit');

t.test('the metrics are valid, also before the program serves', { skip: noPromtool }, async (t) => {
  for (const gauges of [GAUGES, { ...GAUGES, log: undefined }, undefined]) {
    const options = { input: render(gauges), encoding: 'utf8' } as const;
    const { status, stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], options);
    t.strictSame({ status, stdout, stderr }, { status: 0, stdout: '', stderr: '' });
  }
});

t.test('a metric with buckets is a histogram, a total a counter, any other a gauge', async (t) => {
  const text = render(GAUGES);
  const types = [...text.matchAll(/^# TYPE (\S+) (.*)$/gm)].map(([, name = '', type]) => {
    const expected = name.endsWith('_total') ? 'counter' : 'gauge';
    t.equal(type, text.includes(`\n${name}_bucket{`) ? 'histogram' : expected, name);
    return type;
  });
  t.strictSame(new Set(types), new Set(['gauge', 'counter', 'histogram']));
});

/** A request that has begun. */
function begin(): { request: IncomingMessage; end: () => Promise<void> } {
  const request = new IncomingMessage(new Socket());
  let end = (): void => undefined;
  const handled = measure(() => new Promise((resolve) => (end = resolve)))(
    request,
    new ServerResponse(request),
  );
  return {
    request,
    end() {
      end();
      return handled;
    },
  };
}

t.test('a counter of an alert is 0 from the start, so that its first event counts', async (t) => {
  const samples = samplesIn(render(GAUGES));
  for (const status of [500, 503])
    t.equal(
      samples.get(`plant_store_http_responses_total{status="${status}",error="${status}"}`),
      0,
    );
  t.equal(samples.get('plant_store_commit_failures_total'), 0);
});

t.test('the duration of a request is from its start to its response, by status', async (t) => {
  const name = 'plant_store_http_request_duration_seconds';
  let now = 1_000;
  t.intercept(performance, 'now', { value: () => now });
  const { request } = begin();
  const failed = begin();
  now += 3;
  responses.publish({ request, status: 200, error: 0 });
  responses.publish({ request: {}, status: 200, error: 0 });
  responses.publish({ request: failed.request, status: 400, error: 422 });
  const samples = samplesIn(render(GAUGES));
  for (const status of [200, 400]) {
    t.equal(samples.get(`${name}_bucket{status="${status}",le="0.002"}`), 0);
    t.equal(samples.get(`${name}_bucket{status="${status}",le="0.004"}`), 1);
    t.equal(samples.get(`${name}_sum{status="${status}"}`), 0.003);
    t.equal(samples.get(`${name}_count{status="${status}"}`), 1, 'others are not observed');
  }
  for (const status of [500, 503]) t.equal(samples.get(`${name}_count{status="${status}"}`), 0);
});

t.test('a request is in flight until its response is decided, or until it ends', async (t) => {
  const inFlight = (): number | undefined =>
    samplesIn(render(GAUGES)).get('plant_store_http_requests_in_flight');
  const before = inFlight() ?? NaN;
  const [answered, aborted] = [begin(), begin()];
  t.equal(inFlight(), before + 2);
  responses.publish({ request: answered.request, status: 400, error: 413 });
  t.equal(inFlight(), before + 1);
  await answered.end();
  t.equal(inFlight(), before + 1);
  await aborted.end();
  t.equal(inFlight(), before);
});

t.test('commits are in the bucket of their duration', async (t) => {
  const name = 'plant_store_commit_duration_seconds';
  const bounds = [...samplesIn(render(GAUGES)).keys()].flatMap((key) =>
    key.startsWith(`${name}_bucket`) ? [/"(.*)"/.exec(key)?.[1]] : [],
  );
  t.strictSame(bounds, [
    ...['0.0005', '0.001', '0.002', '0.004', '0.008', '0.016', '0.032', '0.064', '0.128'],
    ...['0.256', '0.512', '1.024', '2.048', '4.096', '8.192', '+Inf'],
  ]);
  const durations = [0, 0.5, 0.500_001, 1, 8_192, 8_192.1, 1e9];
  for (const durationMs of durations) commits.publish({ store: '', plants: 2, durationMs });
  for (const plants of [1, 0])
    commits.publish({ store: '', plants, durationMs: 2, error: new Error('half') });
  const samples = samplesIn(render(GAUGES));
  const counts = bounds.map((bound) => samples.get(`${name}_bucket{le="${bound}"}`));
  t.strictSame(counts, [2, 4, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 9]);
  t.equal(samples.get(`${name}_count`), 9);
  t.ok(Math.abs((samples.get(`${name}_sum`) ?? 0) - 1e6 - 16.3901) < 0.001);
  t.equal(samples.get('plant_store_plants_stored_total'), 15);
  t.equal(samples.get('plant_store_commit_failures_total'), 2);
});

t.test('the gauges have the values of the program and of the process', async (t) => {
  // The time of the event loop is 0 until it has begun to turn.
  await nextTurn();
  const samples = samplesIn(render(GAUGES));
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  const build = `plant_store_build_info{version="${version}",node="${process.versions.node}"}`;
  const now = Date.now() / 1e3;
  const uptime = process.uptime();
  const ranges: Record<string, readonly [low: number, high: number]> = {
    plant_store_connections: [3, 3],
    plant_store_connections_dropped_total: [2, 2],
    plant_store_connections_limit: [10, 10],
    plant_store_buffered_bytes: [5, 5],
    plant_store_buffered_bytes_limit: [20, 20],
    plant_store_log_plants: [7, 7],
    plant_store_log_size_bytes: [430, 430],
    [build]: [1, 1],
    process_cpu_seconds_total: [0.01, 100 * uptime],
    process_start_time_seconds: [now - uptime - 5, now],
    process_resident_memory_bytes: [1e7, 1e10],
    nodejs_heap_size_used_bytes: [1e6, 1e10],
    'nodejs_eventloop_time_seconds_total{state="active"}': [1e-6, uptime],
    'nodejs_eventloop_time_seconds_total{state="idle"}': [0, uptime],
  };
  for (const [name, [low, high]] of Object.entries(ranges)) {
    const value = samples.get(name) ?? NaN;
    t.ok(value >= low && value <= high, `${name}: ${value}`);
  }
});
