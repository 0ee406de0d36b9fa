import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';
import { parse } from 'yaml';

import { startMetrics } from '../../dist/program/server/metrics.js';
import { selfSigned } from '../helpers/certificate.js';
import { exchange, message, TOKEN } from '../helpers/client.js';
import { block, read } from '../helpers/documents.js';
import { exactly } from '../helpers/exactly.js';
import { samplesIn } from '../helpers/metrics.js';
import { missing, noPromtool } from '../helpers/needs.js';
import { FERN, inJson, IVY } from '../helpers/plants.js';
import { ENV, SERVER, start } from '../helpers/program.js';

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
}

const FILE = readFileSync('src/program/deploy/plant-store.rules.yml', 'utf8');
const { rules } = (parse(FILE) as { groups: readonly [{ readonly rules: readonly Rule[] }] })
  .groups[0];

function promtool(t: Test, ...args: readonly string[]): void {
  const { status, stdout, stderr } = spawnSync('promtool', args, { encoding: 'utf8' });
  t.equal(status, 0, stdout + stderr);
}

const PODS = readFileSync('src/program/deploy/prometheus-kubernetes.yml', 'utf8');

t.test('Prometheus accepts the configurations and the rules', { skip: noPromtool }, async (t) => {
  // Debian builds Prometheus without kubernetes_sd_configs.
  const discovery = /kubernetes_sd_configs:\n *- role: pod\n/;
  t.match(PODS, discovery);
  const cwd = t.testdir({
    'machine.yml': block('Prometheus', 'yaml'),
    'pods.yml': PODS.replace(discovery, 'static_configs: []\n'),
    'plant-store.rules.yml': FILE,
  });
  promtool(t, 'check', 'config', join(cwd, 'machine.yml'), join(cwd, 'pods.yml'));
});

/** A rule that keeps a target, or drops it, by its labels. */
interface Relabeling {
  readonly source_labels: readonly string[];
  readonly regex: string;
  readonly action: 'keep' | 'drop';
}

/** A rule that copies a label. */
interface Copy {
  readonly source_labels: readonly string[];
  readonly target_label: string;
}

t.test(
  'in Kubernetes, Prometheus scrapes each pod that has not ended, and alerts name the pod',
  async (t) => {
    const { scrape_configs } = parse(PODS) as {
      readonly scrape_configs: readonly {
        readonly relabel_configs: readonly (Relabeling | Copy)[];
      }[];
    };
    const all = scrape_configs.flatMap(({ relabel_configs }) => relabel_configs);
    const rules = all.filter((rule) => 'action' in rule);
    t.strictSame(
      all.filter((rule) => 'target_label' in rule),
      [
        { source_labels: ['__meta_kubernetes_namespace'], target_label: 'namespace' },
        { source_labels: ['__meta_kubernetes_pod_name'], target_label: 'instance' },
      ],
    );
    const isScraped = (app: string, port: string, phase: string): boolean => {
      const labels: Readonly<Record<string, string>> = {
        __meta_kubernetes_pod_label_app: app,
        __meta_kubernetes_pod_container_port_name: port,
        __meta_kubernetes_pod_phase: phase,
      };
      return rules.every(({ source_labels, regex, action }) => {
        // Prometheus joins the values with semicolons, and anchors the expression.
        const value = source_labels.map((label) => labels[label] ?? '').join(';');
        return new RegExp(`^(?:${regex})$`).test(value) === (action === 'keep');
      });
    };
    for (const phase of ['Pending', 'Running', 'Unknown'])
      t.ok(isScraped('plant-store', 'monitor', phase), phase);
    for (const phase of ['Failed', 'Succeeded'])
      t.notOk(isScraped('plant-store', 'monitor', phase), phase);
    t.notOk(isScraped('plant-store', 'http', 'Running'));
    t.notOk(isScraped('another', 'monitor', 'Running'));
  },
);

t.test('each alert has a summary, a sentence that says what to do, and a runbook', async (t) => {
  const runbook = 'src/program/README.md#if-something-is-wrong';
  const documented = {
    annotations: { summary: /\S/, description: /^[A-Z][^.]+\.$/, runbook },
  };
  t.match(rules, exactly(...rules.map(() => documented)));
  t.match(read('src/program/README.md'), '\n## If something is wrong\n');
});

t.test(
  'the daily check prints a served certificate that expires soon, or none',
  { skip: missing('openssl') },
  async (t) => {
    const script = readFileSync('src/program/deploy/daily-certificate.sh', 'utf8');
    const env = { ...ENV, PLANT_STORE_TLS_CERT: 'cert', PLANT_STORE_TLS_KEY: 'key' };
    const { port } = await start(t, { cwd: t.testdir(selfSigned(2100)), env });
    const here = script.replace(':8080', `:${port}`);
    // Until 2100 are fewer than 40,000 days.
    for (const [commands, prints] of [
      [here, /^$/],
      [here.replaceAll('14 ', '40000 '), / expires within 40000 days\n$/],
      [script.replace(':8080', ':1'), /^127\.0\.0\.1:1 serves no certificate/],
    ] as const) {
      const { status, stdout, stderr } = spawnSync('sh', ['-c', commands], { encoding: 'utf8' });
      t.match(stdout, prints);
      t.strictSame([status, stderr], [stdout === '' ? 0 : 1, '']);
    }
  },
);

t.test('the program exports every series of the rules', async (t) => {
  const gauges = { open: 0, dropped: 0, maxConnections: 1, bufferedBytes: 0, maxBufferedBytes: 1 };
  const samples = [...samplesIn(startMetrics().render(gauges)).keys()];
  const expressions = rules.map(({ expr }) => expr).join('\n');
  const selectors = expressions.matchAll(/\b((?:plant_store|process|nodejs)_\w+)(?:\{(.*?)\})?/g);
  for (const [selector, name, matchers = ''] of selectors) {
    const labels = matchers.replace(/,?job="plant-store"/, '');
    const isExported = samples.some(
      (sample) => sample.split('{')[0] === name && sample.includes(labels),
    );
    t.ok(isExported, selector);
  }
});

const { scrape_interval: SCRAPED, evaluation_interval: EVALUATED } = (
  parse(block('Prometheus', 'yaml')) as { readonly global: Readonly<Record<string, string>> }
).global;
/**
 * How soon a critical alert fires after a change, without the time until the next scrape and the
 * next evaluation.
 */
const [, WITHIN] =
  /alert\s+fires\s+within\s+(\d+) seconds/.exec(read('src/program/MONITORING.md')) ?? [];
const FIRES_SECONDS = Number(WITHIN) - parseInt(String(SCRAPED)) - parseInt(String(EVALUATED));

/*
 * The values of a series are given every 15 s for 20 minutes, in the notation of promtool: `1+2x3`
 * is 1, and then 2 more three times. An incident begins after 10 minutes.
 */
const BEGIN_SECONDS = 600;
const steady = (value: number): string => `${value}x79`;
const growing = (by: number): string => `0+${by}x79`;
const changing = (from: number, to: number): string => `${from}x39 ${to}x39`;
const growingLater = (by: number): string => `0x39 ${by}+${by}x39`;

const UP = 'up{}';
const STARTED = 'process_start_time_seconds{}';
const FAILURES = 'plant_store_commit_failures_total{}';
const IN_128_MS = 'plant_store_commit_duration_seconds_bucket{le="0.128"}';
const RESPONSES_500 = 'plant_store_http_responses_total{status="500"}';
const RESPONSES_503 = 'plant_store_http_responses_total{status="503"}';
const DROPPED = 'plant_store_connections_dropped_total{}';
const BUFFERED = 'plant_store_buffered_bytes{}';
const BUFFERED_LIMIT = 'plant_store_buffered_bytes_limit{}';
const ACTIVE = 'nodejs_eventloop_time_seconds_total{state="active"}';
const AVAILABLE = 'node_filesystem_avail_bytes{mountpoint="/var/lib/plant-store"}';
const VOLUME_AVAILABLE =
  'kubelet_volume_stats_available_bytes{persistentvolumeclaim="plant-store"}';
const REPLICAS = 'kube_deployment_status_replicas_available{deployment="plant-store"}';
/** The series of exporters, which are jobs of their own. */
const EXPORTED: readonly string[] = [AVAILABLE, VOLUME_AVAILABLE, REPLICAS];

/** The series of a program in normal operation. */
const NORMAL = {
  [UP]: steady(1),
  [STARTED]: steady(5),
  [FAILURES]: steady(0),
  [IN_128_MS]: growing(1000),
  'plant_store_commit_duration_seconds_bucket{le="0.256"}': growing(1000),
  'plant_store_commit_duration_seconds_bucket{le="+Inf"}': growing(1000),
  'plant_store_http_responses_total{status="200"}': growing(1000),
  [RESPONSES_500]: steady(0),
  [RESPONSES_503]: steady(0),
  [DROPPED]: steady(3),
  [BUFFERED]: steady(0),
  [BUFFERED_LIMIT]: steady(1000),
  [ACTIVE]: growing(1),
  [AVAILABLE]: steady(500),
  'node_filesystem_size_bytes{mountpoint="/var/lib/plant-store"}': steady(1000),
  [VOLUME_AVAILABLE]: steady(500),
  'kubelet_volume_stats_capacity_bytes{persistentvolumeclaim="plant-store"}': steady(1000),
  [REPLICAS]: steady(1),
};

const ABSENT = 'PlantStoreAbsent';

/**
 * For each alert, its severity, a series, the values of the series in the incident, and values that
 * are similar but normal. In a critical incident, plants are refused, or soon will be.
 */
const INCIDENTS: Readonly<Record<string, readonly [string, keyof typeof NORMAL, string, string]>> =
  {
    PlantStoreDown: ['critical', UP, changing(1, 0), '1x39 0 1x38'],
    [ABSENT]: ['critical', UP, '1x39 stale', '1x39 stale _x2 1x36'],
    PlantStoreNotServing: ['critical', BUFFERED_LIMIT, '_x79', '_x15 1000x63'],
    PlantStoreRestarts: ['critical', STARTED, '5x39 601 612 624x37', changing(5, 601)],
    PlantStoreCommitsFail: ['critical', FAILURES, changing(0, 1), steady(9)],
    PlantStoreCommitsSlow: ['warning', IN_128_MS, growing(989), growing(991)],
    PlantStoreUnavailable: ['critical', RESPONSES_503, growingLater(50), growingLater(5)],
    PlantStoreInternalErrors: ['warning', RESPONSES_500, changing(0, 1), steady(9)],
    PlantStoreConnectionsDropped: ['critical', DROPPED, changing(3, 4), steady(9)],
    PlantStoreMemoryNearlyUsedUp: ['warning', BUFFERED, changing(0, 950), '0x39 950x1 100x37'],
    PlantStoreEventLoopBusy: ['warning', ACTIVE, growing(13.6), growing(13.4)],
    PlantStoreFileSystemNearlyFull: ['warning', AVAILABLE, changing(500, 99), changing(500, 101)],
    PlantStoreVolumeNearlyFull: [
      'warning',
      VOLUME_AVAILABLE,
      changing(500, 99),
      changing(500, 101),
    ],
    PlantStoreNoPodReady: ['critical', REPLICAS, changing(1, 0), '1x39 0x2 1x36'],
  };

const JOB = 'plant-store';

/**
 * For each incident: an instance with the incident, named after its alert; an instance with the
 * similar but normal values; and an instance of another job with the incident.
 */
const INSTANCES = Object.entries(INCIDENTS).flatMap(([alert, [, series, incident, normal]]) => [
  { name: alert, job: JOB, fires: true, series, values: incident },
  { name: `not ${alert}`, job: JOB, fires: false, series, values: normal },
  ...(EXPORTED.includes(series)
    ? []
    : [{ name: `${alert} elsewhere`, job: 'another', fires: false, series, values: incident }]),
]);

/** The labels of an alert that has fired in the instance of its name. */
const labelsOf = (alert: string): string =>
  alert === ABSENT ? `{alertname="${alert}"}` : `{alertname="${alert}",instance="${alert}"}`;

/**
 * A test for promtool: within FIRES_SECONDS of the change, exactly the expected alerts of these
 * instances have fired.
 */
function promtoolTest(instances: typeof INSTANCES): object {
  return {
    interval: SCRAPED,
    input_series: instances.flatMap(({ name, job, series, values }) =>
      Object.entries({ ...NORMAL, [series]: values }).map(([each, values]) => ({
        series: each.replace('{', `{job="${job}",instance="${name}",`),
        values,
      })),
    ),
    promql_expr_test: [
      {
        expr: 'count by (alertname, instance) (count_over_time(ALERTS{alertstate="firing"}[20m]))',
        eval_time: `${BEGIN_SECONDS + FIRES_SECONDS}s`,
        exp_samples: instances
          .filter(({ fires }) => fires)
          .map(({ name }) => ({ labels: labelsOf(name), value: 1 })),
      },
    ],
  };
}

t.test('the document names the alerts that need metrics of other programs', async (t) => {
  const [, sentence = ''] =
    /\bThree\s+alerts\s+need ([^]*?)\n\n/.exec(read('src/program/MONITORING.md')) ?? [];
  t.strictSame(
    sentence.match(/PlantStore\w+/g),
    rules.filter(({ expr }) => !expr.includes('job="plant-store"')).map(({ alert }) => alert),
  );
});

t.test('each alert has the severity of its incident', async (t) => {
  t.strictSame(
    rules.map(({ alert, labels }) => [alert, labels.severity]),
    Object.entries(INCIDENTS).map(([alert, [severity]]) => [alert, severity]),
  );
});

t.test('each alert fires in its incident only, and in time', { skip: noPromtool }, async (t) => {
  // PlantStoreAbsent fires only if the job has no other instance.
  const isAlone = ({ name }: { name: string }) => name.endsWith(ABSENT);
  const others = INSTANCES.filter((instance) => !isAlone(instance));
  const elsewhere = others.filter(({ job }) => job !== JOB);
  const alone = INSTANCES.filter(isAlone).map((instance) => [instance, ...elsewhere]);
  const tests = [others, ...alone].map(promtoolTest);
  const options = { rule_files: ['rules.yml'], evaluation_interval: EVALUATED, tests };
  const cwd = t.testdir({ 'rules.yml': FILE, 'tests.json': JSON.stringify(options) });
  promtool(t, 'test', 'rules', join(cwd, 'tests.json'));
});

/**
 * A minimal replacement for OpenTelemetry's package, which creates a span for each request.
 */
const API = `import { AsyncLocalStorage } from 'node:async_hooks';
import { Server } from 'node:http';
const spans = new AsyncLocalStorage();
export const trace = { getActiveSpan: () => spans.getStore() };
const { emit } = Server.prototype;
Server.prototype.emit = function (event, ...args) {
  if (event !== 'request') return emit.call(this, event, ...args);
  const { url } = args[0];
  const span = { setAttribute: (...attribute) => console.error('span', url, ...attribute) };
  return spans.run(span, () => emit.call(this, event, ...args));
};`;

t.test('the documented preloads log each answer, and add its error to the span', async (t) => {
  const cwd = t.testdir({
    'access-log.mjs': readFileSync('src/program/deploy/access-log.mjs'),
    'error-in-traces.mjs': readFileSync('src/program/deploy/error-in-traces.mjs'),
    'node_modules/@opentelemetry/api': {
      'package.json': '{"type":"module","exports":"./index.js"}',
      'index.js': API,
    },
  });
  const imports = ['--import', './access-log.mjs', '--import', './error-in-traces.mjs'];
  const program = await start(t, {
    cwd,
    env: ENV,
    command: [process.execPath, ...imports, SERVER],
  });
  const requests = [
    message(),
    message({ body: inJson({ ...IVY, id: FERN.id }) }),
    message({ target: '/a"\\b', headers: { Authorization: undefined } }),
    Buffer.from('this is not HTTP\r\n\r\n'),
  ];
  for (const request of requests) await exchange(t, program.port, request);
  t.match(await program.stop('SIGTERM'), { code: 0 });
  const lines = program.stdout.split('\n').filter((line) => line.startsWith('{'));
  t.strictSame(
    lines.map((line) => {
      const { time, ...rest } = JSON.parse(line) as Record<string, unknown>;
      t.ok(Math.abs(Date.parse(String(time)) - Date.now()) < 3_600_000);
      return rest;
    }),
    [
      { client: '127.0.0.1', method: 'POST', url: '/plants', status: 200, error: 0 },
      { client: '127.0.0.1', method: 'POST', url: '/plants', status: 400, error: 409 },
      { client: '127.0.0.1', method: 'POST', url: '/a"\\b', status: 401, error: 401 },
      { status: 400, error: 400 },
    ],
  );
  t.notMatch(program.stdout, TOKEN);
  t.strictSame(program.stderr.match(/^span .*$/gm), [
    'span /plants plant_store.error 0',
    'span /plants plant_store.error 409',
    'span /a"\\b plant_store.error 401',
  ]);
});
