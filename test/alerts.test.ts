import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { selfSigned } from './certificate.js';
import { TOKEN } from './client.js';
import { noPromtool, scrape } from './metrics.js';
import { block } from './readme.js';
import { start } from './system/program.js';

const RULES = readFileSync('.github/plant-store.rules.yml', 'utf8');
const SCRAPING = block('Prometheus', 'yaml');
const NAMES = [...RULES.matchAll(/^ +- alert: (\w+)$/gm)].map(([, name = '']) => name);

function promtool(t: Test, ...args: readonly string[]): void {
  const { status, stdout, stderr } = spawnSync('promtool', args, { encoding: 'utf8' });
  t.equal(status, 0, stdout + stderr);
}

/**
 * The values of series every 15 s, in the notation of promtool: `1+2x3` is 1, and then 2 more three times.
 * `undefined` if there is no such series.
 */
type World = Readonly<Record<string, string | undefined>>;

const LABELS = 'job="plant-store",instance="a"';
/** The name of a series with the labels that Prometheus adds. */
const series = (name: string, labels = ''): string =>
  name.startsWith('node_')
    ? `${name}{mountpoint="/var/lib/plant-store"}`
    : `${name}{${labels && `${labels},`}${LABELS}}`;

/** How long a world lasts, and when its incident begins, in seconds and in values. */
const [END, BEGIN] = [1_200, 600];
const before = BEGIN / 15;
const rest = (END - BEGIN) / 15 - 1;
/** A value that changes when the incident begins. */
const then = (value: number, incident: number): string =>
  `${value}x${before - 1} ${incident}x${rest}`;
/** A counter that grows from then on, each time by that much. */
const growing = (by: number): string => `0x${before - 1} ${by}+${by}x${rest}`;
const always = (value: number): string => `${value}x${before + rest}`;

const DURATION = 'plant_store_commit_duration_seconds_bucket';
const responses = (status: number): string =>
  series('plant_store_http_responses_total', `status="${status}"`);

/** Commits that are all in the bucket with this bound. */
const commitsIn = (bucket: number): World =>
  Object.fromEntries(
    ['0.032', '0.064', '0.128', '0.256', '+Inf'].map((bound) => [
      series(DURATION, `le="${bound}"`),
      Number(bound.replace('+Inf', 'Infinity')) < bucket ? always(0) : `0+1000x${before + rest}`,
    ]),
  );

/** A program in normal operation. */
const NORMAL: World = {
  [series('up')]: always(1),
  [series('process_start_time_seconds')]: always(5),
  [series('plant_store_commit_failures_total')]: always(0),
  ...commitsIn(0.032),
  [responses(200)]: `0+1000x${before + rest}`,
  [responses(500)]: always(0),
  [responses(503)]: always(0),
  [series('plant_store_connections_dropped_total')]: always(3),
  [series('plant_store_buffered_bytes')]: always(0),
  [series('plant_store_buffered_bytes_limit')]: always(1000),
  [series('nodejs_eventloop_time_seconds_total', 'state="active"')]: `0+1x${before + rest}`,
  [series('nodejs_eventloop_time_seconds_total', 'state="idle"')]: `0+14x${before + rest}`,
  [series('node_filesystem_avail_bytes')]: always(500),
  [series('node_filesystem_size_bytes')]: always(1000),
};

/** For each alert, what changes in its incident, and in a situation that looks like it but is normal. */
const INCIDENTS: Readonly<Record<string, { incident: World; normal: World; after?: number }>> = {
  PlantStoreDown: {
    incident: { [series('up')]: then(1, 0) },
    normal: { [series('up')]: `1x${before - 1} 0x0 1x${rest - 1}` },
  },
  PlantStoreAbsent: {
    incident: { [series('up')]: `1x${before - 1} stale` },
    normal: { [series('up')]: undefined, [`up{job="plant-store",instance="b"}`]: always(1) },
  },
  PlantStoreRestarts: {
    incident: { [series('process_start_time_seconds')]: `5x${before - 1} 601 612 624x${rest}` },
    normal: { [series('process_start_time_seconds')]: then(5, 601) },
  },
  PlantStoreCommitsFail: {
    incident: { [series('plant_store_commit_failures_total')]: then(0, 1) },
    normal: { [series('plant_store_commit_failures_total')]: always(9) },
  },
  PlantStoreCommitsSlow: {
    incident: commitsIn(0.256),
    normal: commitsIn(0.128),
    after: 400,
  },
  PlantStoreUnavailable: {
    incident: { [responses(503)]: growing(50) },
    normal: { [responses(503)]: growing(5) },
  },
  PlantStoreInternalErrors: {
    incident: { [responses(500)]: then(0, 1) },
    normal: { [responses(500)]: always(9) },
  },
  PlantStoreConnectionsDropped: {
    incident: { [series('plant_store_connections_dropped_total')]: then(3, 4) },
    normal: { [series('plant_store_connections_dropped_total')]: always(9) },
  },
  PlantStoreMemoryNearlyUsedUp: {
    incident: { [series('plant_store_buffered_bytes')]: then(0, 950) },
    normal: { [series('plant_store_buffered_bytes')]: `0x${before - 1} 950x1 100x${rest}` },
  },
  PlantStoreEventLoopBusy: {
    incident: {
      [series('nodejs_eventloop_time_seconds_total', 'state="active"')]: `0+14x${before + rest}`,
    },
    normal: {
      [series('nodejs_eventloop_time_seconds_total', 'state="active"')]: `0+13x${before + rest}`,
    },
    after: 400,
  },
  PlantStoreFileSystemNearlyFull: {
    incident: { [series('node_filesystem_avail_bytes')]: then(500, 90) },
    normal: { [series('node_filesystem_avail_bytes')]: then(500, 110) },
  },
};

/** A test of promtool: in a world, exactly these alerts have fired by a time, in seconds. */
function fires(name: string, world: World, seconds: number, alerts: readonly string[]): object {
  return {
    name,
    interval: '15s',
    input_series: Object.entries(world).flatMap(([each, values]) =>
      values === undefined ? [] : [{ series: each, values }],
    ),
    promql_expr_test: [
      {
        expr: 'count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[20m]))',
        eval_time: `${seconds}s`,
        exp_samples: alerts.map((alertname) => ({
          labels: `{alertname="${alertname}"}`,
          value: 1,
        })),
      },
    ],
  };
}

t.test('Prometheus accepts the configuration and the rules', { skip: noPromtool }, async (t) => {
  const cwd = t.testdir({ 'prometheus.yml': SCRAPING, 'plant-store.rules.yml': RULES });
  promtool(t, 'check', 'config', join(cwd, 'prometheus.yml'));
});

t.test('each alert has a severity, a summary, and a sentence that says what to do', async (t) => {
  const alerts = RULES.split(/^ +- alert: /m).slice(1);
  for (const alert of alerts) {
    const [, severity] = /\n +severity: (\w+)\n/.exec(alert) ?? [];
    const [name = ''] = alert.split('\n');
    t.match(severity, /^(?:critical|warning)$/, name);
    t.match(alert, /\n +summary: \S/, name);
    const [, description = ''] = /\n +description: (?:>-\n)?([^]*)$/.exec(alert) ?? [];
    t.match(description.replace(/\s+/g, ' ').trim(), /^[A-Z][^.]+\.$/, name);
  }
});

t.test(
  'each alert fires in its incident, and no alert in what only looks like it',
  { skip: noPromtool },
  async (t) => {
    t.strictSame(Object.keys(INCIDENTS), NAMES);
    const tests = Object.entries(INCIDENTS).flatMap(([name, { incident, normal, after = 60 }]) => {
      const at = BEGIN + after;
      return [
        fires(`${name}, incident`, { ...NORMAL, ...incident }, at, [name]),
        fires(`${name}, normal`, { ...NORMAL, ...normal }, at, []),
      ];
    });
    const options = { rule_files: ['rules.yml'], evaluation_interval: '15s', tests };
    const cwd = t.testdir({ 'rules.yml': RULES, 'tests.json': JSON.stringify(options) });
    promtool(t, 'test', 'rules', join(cwd, 'tests.json'));
  },
);

t.test('the program exports every series of the rules', async (t) => {
  const { cert, key } = selfSigned();
  const cwd = t.testdir({ cert, key });
  const program = await start(t, {
    cwd,
    env: {
      PLANT_STORE_TOKEN: TOKEN,
      PLANT_STORE_MONITOR_PORT: '0',
      PLANT_STORE_TLS_CERT: 'cert',
      PLANT_STORE_TLS_KEY: 'key',
    },
  });
  const [, monitor = ''] = await program.says('stdout', /^monitor: (http:.*)\n/m);
  const samples = [...(await scrape(monitor)).keys()];
  const selectors = [...RULES.matchAll(/\b((?:plant_store|process|nodejs)_\w+)(?:\{(.*?)\})?/g)];
  t.ok(selectors.length > 8);
  for (const [selector, name, matchers = ''] of selectors) {
    const labels = matchers.replace(/,?job="plant-store"/, '');
    const isExported = samples.some(
      (sample) => sample.split('{')[0] === name && sample.includes(labels),
    );
    t.ok(isExported, selector);
  }
});
