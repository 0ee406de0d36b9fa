/**
 * Compares the startup time of the program, with a new log and a new token, with that of a bare
 * node:http server that imports typebox/schema:
 *
 *   node test/bench/startup.js [pairs]
 *
 * The two alternate, so that other load on the machine affects both.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const TARGET = 1.5;
const PROGRAM = fileURLToPath(new URL('../../dist/server.js', import.meta.url));
const BARE = fileURLToPath(new URL('servers/typebox.js', import.meta.url));

const pairs = Number(process.argv[2] ?? 21);
const folder = mkdtempSync(join(tmpdir(), 'plant-store-startup-'));
const times = [];
try {
  for (let pair = 0; pair < pairs; pair++)
    times.push({
      bare: await timeToListen(BARE),
      program: await timeToListen(PROGRAM, join(folder, String(pair), 'plants.jsonl')),
    });
} finally {
  rmSync(folder, { recursive: true });
}

const bare = median(times.map((time) => time.bare));
const program = median(times.map((time) => time.program));
const ratio = median(times.map((time) => time.program / time.bare));
console.log(
  `time until listening: plant-store ${program.toFixed(0)} ms, bare server ${bare.toFixed(0)} ms`,
);
console.log(`ratio: ${ratio.toFixed(2)}, median of ${pairs} pairs; target: at most ${TARGET}`);

/** From the start of the process to the line that contains its URL, in ms. */
async function timeToListen(script, file = '') {
  const env = { PATH: process.env.PATH, PLANT_STORE_PORT: '0', PLANT_STORE_FILE: file };
  const startedAt = performance.now();
  const child = spawn(process.execPath, [script], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  const [line] = await Promise.race([
    once(createInterface({ input: child.stdout }), 'line'),
    ended,
  ]);
  const time = performance.now() - startedAt;
  if (!/listening on http/.test(line)) throw new Error(`${script} did not print its URL: ${line}`);
  child.kill('SIGKILL');
  await ended;
  return time;
}

function median(numbers) {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1];
}
