/**
 * The reference for latency: repeats the durable write of one plant's line, with the same flags as
 * the log and without HTTP.
 *
 *   node bare-write.js FOLDER SECONDS
 */

import { constants, openSync, write } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

const LINE = Buffer.from(
  '{"id":101100000000,"name":"Boston fern","tag":"indoor","crc32":1234567890}\n',
);
const { O_APPEND, O_CREAT, O_DSYNC, O_WRONLY } = constants;

const [folder, seconds] = process.argv.slice(2);
const file = openSync(join(folder, 'bare-write'), O_APPEND | O_CREAT | O_DSYNC | O_WRONLY);
const append = promisify(write);

const latencies = [];
const start = performance.now();
let now = start;
while (now - start < seconds * 1000) {
  const before = now;
  await append(file, LINE);
  now = performance.now();
  latencies.push((now - before) * 1000);
}
latencies.sort((a, b) => a - b);

const rate = (latencies.length / (now - start)) * 1000;
console.log(JSON.stringify({ rate, p50: percentile(0.5), p99: percentile(0.99) }));

function percentile(share) {
  return latencies[Math.floor(latencies.length * share)];
}
