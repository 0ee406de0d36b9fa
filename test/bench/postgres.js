/**
 * Measures the store on PostgreSQL beside one INSERT for each request, and beside the log:
 *
 *   npm run bench:postgres -- [--rounds 8] [--turns 2] [--seconds 1] [--connections 16,64,256]
 *                             [--markdown FILE]
 *
 * Starts a PostgreSQL server with the default settings in a temporary folder; TMPDIR chooses the
 * disk. The exit code is 0 whatever the figures are, and 1 if a server fails or a plant that was answered 200 is
 * missing.
 */

import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { parseArgs } from 'node:util';
import { fileURLToPath } from 'node:url';
import { find, missing, query, startCluster } from '../../.test/postgres/cluster.js';
import { measureRounds } from './measure.js';
import {
  compared,
  method,
  ratio,
  significant,
  summarize,
  table,
  verdict,
  whole,
} from './report.js';
import { count, refuseMemory, temporaryFolder } from './setup.js';
import { OURS, SYSTEMS } from './systems.js';

const LOG = 'log';
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
  const settings = { ...readSettings(process.argv.slice(2)), systems: await prepare() };
  report(await measureRounds(settings, temporaryFolder(tmpdir())), settings);
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
      rounds: { type: 'string', default: '8' },
      turns: { type: 'string', default: '2' },
      seconds: { type: 'string', default: '1' },
      connections: { type: 'string', default: '16,64,256' },
      markdown: { type: 'string' },
    },
  });
  return {
    rounds: count('rounds', values.rounds),
    turns: count('turns', values.turns),
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
  /** A database of its own, which each start finds with an empty table. */
  const database = (name) => {
    const url = cluster.urlOf(name);
    return {
      url,
      work: DURABLE,
      async prepare() {
        await cluster.sql(`DROP DATABASE IF EXISTS ${name}`);
        await cluster.sql(`CREATE DATABASE ${name}`);
        await query(url, TABLE);
      },
      readIds: async () => (await query(url, 'SELECT id FROM plants')).map(({ id }) => Number(id)),
    };
  };
  const [ours, insert] = [database('ours'), database('insert_each')];
  return [
    {
      ...ours,
      name: OURS,
      title: 'plant-store on PostgreSQL',
      script: fileURLToPath(new URL('../../dist/server.js', import.meta.url)),
      env: { PLANT_STORE_DATABASE_URL: ours.url },
    },
    {
      ...insert,
      name: INSERT,
      title: 'one INSERT a request, pool of ten',
      script: fileURLToPath(new URL('servers/postgres-insert.js', import.meta.url)),
      env: { DATABASE_URL: insert.url },
    },
    { ...SYSTEMS.find(({ name }) => name === OURS), name: LOG, title: 'plant-store on its log' },
  ];
}

function report(measurements, settings) {
  const { connections: counts, rounds, turns, seconds, markdown } = settings;
  const summary = summarize(measurements);
  const figures = table(summary, settings, COLUMNS);
  console.log(figures);
  console.log(targets(summary).map(verdict).join('\n'));
  if (markdown === undefined) return;
  const { stdout } = spawnSync(find('postgres'), ['--version'], { encoding: 'utf8' });
  writeFileSync(
    markdown,
    `# Results with PostgreSQL

${figures}
${method(settings)}PostgreSQL runs there as well: ${stdout.trim()} with its default settings.

Measured with

    npm run bench:postgres -- --rounds ${rounds} --turns ${turns} --seconds ${seconds} --connections ${counts}
`,
  );
}

/** What the store on PostgreSQL is meant to reach. */
function targets(summary) {
  const rates = compared(summary, 'plants/s', 'at least', ({ rate }) => rate);
  return [...rates(2.5, INSERT, 64), ...rates(3.5, INSERT, 256), ...rates(0.8, LOG, 64, 256)];
}
