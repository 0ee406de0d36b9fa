import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { startMetrics } from '../../dist/program/server/metrics.js';
import { samplesIn } from '../helpers/metrics.js';
import { noPromtool } from '../helpers/needs.js';

interface Dashboard {
  readonly templating: { readonly list: readonly { readonly name: string }[] };
  readonly panels: readonly {
    readonly datasource: { readonly uid: string };
    readonly fieldConfig: { readonly defaults: { readonly unit?: string } };
    readonly targets: readonly { readonly expr: string }[];
  }[];
}

const FILE = readFileSync('src/program/deploy/grafana-dashboard.json', 'utf8');
const { panels, templating } = JSON.parse(FILE) as Dashboard;
const QUERIES = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));

const GAUGES = {
  ...{ open: 0, dropped: 0, maxConnections: 1, bufferedBytes: 0, maxBufferedBytes: 1 },
  log: { size: 0, bytes: 0 },
};

t.test('the dashboard shows every metric of the program, and no other', async (t) => {
  const text = startMetrics().render(GAUGES);
  const metrics = [...text.matchAll(/^# TYPE (\w+) /gm)].map(([, name = '']) => name);
  const samples = [...samplesIn(text).keys()];
  const shown = new Set<string>();
  for (const query of QUERIES)
    for (const [selector, name = '', labels = ''] of query.matchAll(
      /(\w+)\{job="plant-store",?(.*?)\}/g,
    )) {
      shown.add(name.replace(/_(?:bucket|count)$/, ''));
      const isExported = samples.some((sample) => sample.startsWith(`${name}{`) || sample === name);
      t.ok(isExported && samples.some((sample) => sample.includes(labels)), selector);
    }
  t.strictSame([...shown].toSorted(), metrics.toSorted());
});

t.test('each panel queries the Prometheus that is chosen for the dashboard', async (t) => {
  const [{ name } = { name: '' }] = templating.list;
  for (const { datasource } of panels) t.equal(datasource.uid, `\${${name}}`);
});

/** The units of Grafana for values that a query has in these units of Prometheus. */
const UNITS: readonly (readonly [query: RegExp, unit: string])[] = [
  [/^(?:histogram_quantile|time\(\)).*_seconds/, 's'],
  [/^rate\(.*_seconds_total\{/, 'percentunit'],
  [/^\w+_bytes(?:_limit)?\{/, 'bytes'],
  [/rate\(plant_store_http_responses_total\{/, 'reqps'],
  [/^sum\(rate\(.*_total\{/, 'ops'],
  [/^plant_store_build_info\{/, 'none'],
];

t.test('each panel has the unit of what it shows', async (t) => {
  for (const { fieldConfig, targets } of panels)
    for (const { expr } of targets) {
      const [, unit = 'short'] = UNITS.find(([query]) => query.test(expr)) ?? [];
      t.equal(fieldConfig.defaults.unit ?? 'none', unit, expr);
    }
});

t.test('Prometheus accepts the queries of the dashboard', { skip: noPromtool }, async (t) => {
  const rules = QUERIES.map((query, n) => ({
    record: `query_${n}`,
    expr: query.replaceAll('$__rate_interval', '1m'),
  }));
  const cwd = t.testdir({ 'rules.json': JSON.stringify({ groups: [{ name: 'queries', rules }] }) });
  const args = ['check', 'rules', join(cwd, 'rules.json')];
  const { status, stdout, stderr } = spawnSync('promtool', args, { encoding: 'utf8' });
  t.equal(status, 0, stdout + stderr);
});
