/**
 * Whether the service stays what it is under constant load:
 *
 *   node test/bench/growth.js [--minutes 10] [--connections 64] [--folder /tmp]
 *
 * Shows, for each part of the time, throughput, latency, memory and the longest pause of the event
 * loop, and at the end what is left of the heap after a collection that was asked for.
 */

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { load, TOKEN } from './measure.js';

const PROGRAM = fileURLToPath(new URL('../../dist/server.js', import.meta.url));
const PROBE = new URL('probe.js', import.meta.url).href;
const PARTS = 20;
const WARM_UP_SECONDS = 20;
const MIB = 2 ** 20;

/** What is looked at in the end. */
const MAX_PAUSE_MS = 50;
const MIN_THROUGHPUT = 0.9;
const MAX_HEAP_GROWTH = 4 * MIB;

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    connections: { type: 'string', default: '64' },
    folder: { type: 'string', default: tmpdir() },
  },
});
const connections = Number(values.connections);
const seconds = Math.max(1, Math.round((Number(values.minutes) * 60) / PARTS));

const folder = mkdtempSync(join(values.folder, 'plant-store-growth-'));
const child = fork(PROGRAM, {
  execArgv: ['--expose-gc', '--import', PROBE],
  env: {
    PATH: process.env.PATH,
    PLANT_STORE_PORT: '0',
    PLANT_STORE_FILE: join(folder, 'plants.jsonl'),
    PLANT_STORE_TOKEN: TOKEN,
  },
  stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
});
process.once('exit', () => {
  child.kill('SIGKILL');
  rmSync(folder, { recursive: true, maxRetries: 5 });
});
for (const signal of ['SIGHUP', 'SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));

const [output] = await once(child.stdout, 'data');
const url = `${/\bhttp:\S+/.exec(output)[0]}/plants`;

async function ask(question) {
  child.send(question);
  const [answer] = await once(child, 'message');
  return answer;
}

await load(url, connections, WARM_UP_SECONDS);
const before = await ask('memory');
const parts = [];
let plants = 0;
console.log('   plants  requests/s   p50 ms   p99 ms  longest pause ms  resident MiB');
for (let part = 1; part <= PARTS; part++) {
  await ask('delay');
  const { answered, other, p50, p99 } = await load(url, connections, seconds);
  if (other > 0) throw new Error(`${other} requests were not answered with 200`);
  const pause = await ask('delay');
  const { rss } = await ask('memory');
  plants += answered;
  parts.push({ rate: answered / seconds, p99, pause });
  const figures = [answered / seconds, p50 / 1000, p99 / 1000, pause, rss / MIB];
  const widths = [12, 9, 9, 18, 14];
  const cells = figures.map((figure, n) => figure.toFixed(n === 0 ? 0 : 1).padStart(widths[n]));
  console.log(String(plants).padStart(9) + cells.join(''));
}
const after = await ask('memory');
child.kill('SIGTERM');
await once(child, 'exit');

const third = Math.floor(PARTS / 3);
const rates = [parts.slice(0, third), parts.slice(-third)].map((some) =>
  median(some.map(({ rate }) => rate)),
);
const pause = Math.max(...parts.map((part) => part.pause));
const heap = after.heapUsed - before.heapUsed;
const index = after.arrayBuffers - before.arrayBuffers;
verdict(
  `throughput of the last third over the first: at least ${MIN_THROUGHPUT}`,
  rates[1] / rates[0],
  (value) => value >= MIN_THROUGHPUT,
);
verdict(`longest pause in ms: at most ${MAX_PAUSE_MS}`, pause, (value) => value <= MAX_PAUSE_MS);
verdict(
  `growth of the collected heap in MiB: at most ${MAX_HEAP_GROWTH / MIB}`,
  heap / MIB,
  (value) => value <= MAX_HEAP_GROWTH / MIB,
);
verdict('growth of the index in bytes a plant: at most 40', index / plants, (value) => value <= 40);

function verdict(claim, value, isMet) {
  console.log(`${isMet(value) ? 'pass' : 'FAIL'}  ${claim}: ${value.toFixed(2)}`);
}

function median(numbers) {
  return numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)];
}
