/**
 * Measures the store on PostgreSQL beside one INSERT for each request, and beside the log:
 *
 *   npm run bench:postgres -- [--rounds 3] [--seconds 3] [--connections 16,64,256]
 *                             [--markdown FILE]
 *
 * Starts a PostgreSQL server with the default settings in a temporary folder; TMPDIR chooses the
 * disk. Every round measures every system at every number of connections. The exit code is 0
 * whatever the figures are, and 1 if a server fails or a plant that was answered 200 is missing.
 */

import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { cpus, release, tmpdir } from 'node:os';
import { parseArgs } from 'node:util';
import { fileURLToPath } from 'node:url';
import { find, missing, startCluster } from '../../.test/postgres/cluster.js';
import { measure } from './measure.js';
import { aligned, ratio, significant, summarize, verdict, whole } from './report.js';
import { count, refuseMemory, temporaryFolder } from './setup.js';
import { OURS as LOG, SYSTEMS } from './systems.js';

const OURS = 'plant-store';
const INSERT = 'postgres-insert';
const DURABLE = ['token', 'validation', 'unique id', 'on disk'];
const TABLE =
  'CREATE TABLE plants (id bigint PRIMARY KEY, name text NOT NULL, tag text, exact text)';

const COLUMNS = [
  { title: 'plants/s', figure: (own) => own.rate, show: whole },
  { title: '× one INSERT', figure: (own, of) => own.rate / of(INSERT).rate, show: ratio },
  { title: '× log', figure: (own, of) => own.rate / of(LOG).rate, show: ratio },
  { title: 'p50 ms', figure: (own) => own.p50 / 1000, show: significant },
  { title: 'p99 ms', figure: (own) => own.p99 / 1000, show: significant },
  { title: 'main thread µs/plant', figure: (own) => own.mainThread, show: significant },
];

const teardowns = [];
try {
  const settings = readSettings(process.argv.slice(2));
  const systems = await prepare();
  report(await measureAll(settings, systems), settings, systems);
} catch (error) {
  console.error(`bench: ${error.message}`);
  process.exitCode = 1;
} finally {
  for (const teardown of teardowns.reverse()) await teardown();
}

function readSettings(args) {
  const { values } = parseArgs({
    args,
    options: {
      rounds: { type: 'string', default: '3' },
      seconds: { type: 'string', default: '3' },
      connections: { type: 'string', default: '16,64,256' },
      markdown: { type: 'string' },
    },
  });
  return {
    rounds: count('rounds', values.rounds),
    seconds: count('seconds', values.seconds),
    connections: values.connections.split(',').map((text) => count('connections', text)),
    markdown: values.markdown,
  };
}

async function prepare() {
  const reason = missing() || (find('wrk') === undefined && 'not installed: wrk');
  if (reason) throw new Error(reason);
  refuseMemory(tmpdir());
  const cluster = await startCluster({ teardown: (callback) => teardowns.push(callback) });
  const database = {
    work: DURABLE,
    prepare: () => cluster.sql(`DROP TABLE IF EXISTS plants; ${TABLE}`),
    readIds: async () => (await cluster.sql('SELECT id FROM plants')).map(({ id }) => Number(id)),
  };
  return [
    {
      ...database,
      name: OURS,
      title: 'plant-store on PostgreSQL',
      script: fileURLToPath(new URL('../../dist/server.js', import.meta.url)),
      env: { PLANT_STORE_DATABASE_URL: cluster.url },
    },
    {
      ...database,
      name: INSERT,
      title: 'one INSERT a request, pool of ten',
      script: fileURLToPath(new URL('servers/postgres-insert.js', import.meta.url)),
      env: { DATABASE_URL: cluster.url },
    },
    { ...SYSTEMS.find(({ name }) => name === LOG), title: 'plant-store on its log' },
  ];
}

async function measureAll({ connections: counts, rounds, seconds }, systems) {
  const folder = temporaryFolder(tmpdir());
  const order = [...systems];
  const measurements = [];
  for (let round = 1; round <= rounds; round++) {
    for (const connections of counts) {
      order.push(order.shift());
      for (const system of order) {
        await system.prepare?.();
        const figures = await measure(system, connections, seconds, folder);
        const result = `${system.name} ${whole(figures.rate)}/s`;
        console.error(`round ${round} of ${rounds}, connections ${connections}: ${result}`);
        measurements.push({ round, name: system.name, connections, ...figures });
      }
    }
  }
  return measurements;
}

function report(measurements, { connections: counts, rounds, seconds, markdown }, systems) {
  const summary = summarize(measurements);
  const rows = counts.flatMap((connections) =>
    systems.map(({ name, title }) => [
      title,
      whole(connections),
      ...COLUMNS.map(({ figure, show }) =>
        show(summary(connections, (of) => figure(of(name), of))),
      ),
    ]),
  );
  const table = aligned([['system', 'connections', ...COLUMNS.map(({ title }) => title)], ...rows]);
  console.log(table);
  console.log(targets(summary).map(verdict).join('\n'));
  if (markdown === undefined) return;
  const { stdout } = spawnSync(find('postgres'), ['--version'], { encoding: 'utf8' });
  writeFileSync(
    markdown,
    `# Results with PostgreSQL

${table}
Medians of ${rounds} interleaved rounds of ${seconds} s; ratios compare two systems in each round. The servers, PostgreSQL
and \`wrk\` share one machine: ${cpus()[0].model}, ${cpus().length} cores, Linux ${release().split('-', 1)}, Node
${process.versions.node}, ${stdout.trim()} with its default settings.

Measured with

    npm run bench:postgres -- --rounds ${rounds} --seconds ${seconds} --connections ${counts}
`,
  );
}

/** What the store on PostgreSQL is meant to reach. */
function targets(summary) {
  const atLeast = (limit, name, connections) => ({
    claim: `plants/s at ${connections}: at least ${limit} × ${name}`,
    value: summary(connections, (of) => of(OURS).rate / of(name).rate),
    isMet: (value) => value >= limit,
  });
  return [
    atLeast(2.5, INSERT, 64),
    atLeast(3.5, INSERT, 256),
    atLeast(0.8, LOG, 64),
    atLeast(0.8, LOG, 256),
  ];
}
