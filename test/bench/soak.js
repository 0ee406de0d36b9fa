/**
 * Whether the service stays as it is under constant load:
 *
 *   npm run bench:soak -- [--minutes 10] [--connections 64] [--folder /tmp]
 *
 * Prints throughput, latency, processor time per plant, the longest pause of the event loop and
 * memory for each twentieth of the time, and at the end how far the heap has grown between two
 * forced collections. Other processes lower the throughput and lengthen the pauses, but change
 * processor time much less.
 */

import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ask, load, startProbed, TOKEN, usageBetween } from './measure.js';
import { median, verdict } from './report.js';
import { temporaryFolder } from './setup.js';
import { OURS, SYSTEMS } from './systems.js';

const PARTS = 20;
const WARM_UP_SECONDS = 20;
const MIB = 2 ** 20;

const COLUMNS = [
  { title: 'plants stored', figure: ({ plants }) => plants, digits: 0 },
  { title: 'plants/s', figure: ({ rate }) => rate, digits: 0 },
  { title: 'p50 ms', figure: ({ p50 }) => p50 / 1000, digits: 1 },
  { title: 'p99 ms', figure: ({ p99 }) => p99 / 1000, digits: 1 },
  { title: 'main thread µs/plant', figure: ({ mainThread }) => mainThread, digits: 1 },
  { title: 'all threads µs/plant', figure: ({ cpu }) => cpu, digits: 1 },
  { title: 'longest pause ms', figure: ({ pause }) => pause, digits: 1 },
  { title: 'resident MiB', figure: ({ rss }) => rss / MIB, digits: 1 },
];

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    connections: { type: 'string', default: '64' },
    folder: { type: 'string', default: tmpdir() },
  },
});
const connections = Number(values.connections);
const seconds = Math.max(1, Math.round((Number(values.minutes) * 60) / PARTS));

const folder = temporaryFolder(values.folder);
const { script } = SYSTEMS.find(({ name }) => name === OURS);
const child = startProbed(script, {
  PATH: process.env.PATH,
  PLANT_STORE_PORT: '0',
  PLANT_STORE_FILE: join(folder, 'plants.jsonl'),
  PLANT_STORE_TOKEN: TOKEN,
});
const [output] = await once(child.stdout, 'data');
const url = `${/\bhttp:\S+/.exec(output)[0]}/plants`;

await load(url, connections, WARM_UP_SECONDS);
const before = await ask(child, 'memory');
const parts = [];
let plants = 0;
console.log(COLUMNS.map(({ title }) => title).join('  '));
while (parts.length < PARTS) {
  const part = await measurePart();
  parts.push(part);
  const cells = COLUMNS.map(({ title, figure, digits }) =>
    (figure(part) ?? NaN).toFixed(digits).padStart(title.length),
  );
  console.log(cells.join('  '));
}
const after = await ask(child, 'memory');
child.kill('SIGTERM');
await once(child, 'exit');
console.log(claims().map(verdict).join('\n'));

async function measurePart() {
  await ask(child, 'delay');
  const usage = {};
  const { answered, other, p50, p99 } = await load(url, connections, seconds, async (moment) => {
    usage[moment] = await ask(child, 'usage');
  });
  if (other > 0) throw new Error(`${other} requests were not answered with 200`);
  const pause = await ask(child, 'delay');
  const { rss } = await ask(child, 'memory');
  plants += answered;
  const rate = (answered - connections) / seconds;
  return { plants, rate, p50, p99, pause, rss, ...usageBetween(usage.begin, usage.end, answered) };
}

function claims() {
  return [
    atLeast(0.9, 'plants/s, last third over first', lastOverFirst('rate')),
    atMost(1.1, 'main thread µs/plant, last third over first', lastOverFirst('mainThread')),
    atMost(1.1, 'all threads µs/plant, last third over first', lastOverFirst('cpu')),
    atMost(50, 'longest pause in ms', Math.max(...parts.map(({ pause }) => pause))),
    atMost(4, 'growth of the heap in MiB', growth('heapUsed') / MIB),
    atMost(40, 'index in bytes per plant', growth('arrayBuffers') / plants),
  ];
}

/** The growth of a kind of memory in bytes. */
function growth(kind) {
  return after[kind] - before[kind];
}

function lastOverFirst(name) {
  const third = Math.floor(PARTS / 3);
  const [first, last] = [parts.slice(0, third), parts.slice(-third)].map((some) =>
    median(some.map((part) => part[name])),
  );
  return last / first;
}

function atLeast(limit, title, value) {
  return { claim: `${title}: at least ${limit}`, value, isMet: () => value >= limit };
}

function atMost(limit, title, value) {
  return { claim: `${title}: at most ${limit}`, value, isMet: () => value <= limit };
}
