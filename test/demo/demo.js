/**
 * Kills the service with SIGKILL once a second while clients store plants, starts it again each
 * time, and counts the plants that were answered with 200 but are not in the log:
 *
 *   npm run demo [-- KILLS]
 *
 * SIGKILL ends a process between any two instructions. What the process has written remains; what
 * was only in its memory is lost. So a server that answers before it writes fails here. SIGKILL
 * does not show what a power cut takes from the page cache: `npm run check crash-states` and
 * `npm run check faults` do.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const SERVER = fileURLToPath(new URL('../../dist/server.js', import.meta.url));
const KILLS = Number(process.argv[2] ?? 8);
const CLIENTS = 16;
const { isTTY } = process.stdout;

const folder = mkdtempSync(join(tmpdir(), 'plant-store-demo-'));
const agent = new Agent({ keepAlive: true });
/** The plants that were answered with 200. */
const acknowledged = [];
let kills = 0;
let lost = 0;
let nextId = 1;
let child;
/** Resolves to the exit code of the service, or to the signal that ended it. */
let ended;
/** Resolves to the address and the token of the service, once it has started (again). */
let service = start();

for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
process.once('exit', () => {
  child.kill('SIGKILL');
  rmSync(folder, { recursive: true, maxRetries: 5 });
});

try {
  const drawing = setInterval(draw, 100);
  await Promise.all([killRepeatedly(), ...Array.from({ length: CLIENTS }, storePlants)]);
  await stop('SIGTERM');
  clearInterval(drawing);
  draw('\n');
} catch (error) {
  draw('\n');
  console.error(`demo: ${error.message}`);
  process.exit(1);
}

async function killRepeatedly() {
  while (kills < KILLS) {
    await service;
    await sleep(1_000);
    service = stop('SIGKILL').then(start);
    await service;
    kills++;
    if (!isTTY) draw('\n');
  }
}

/**
 * Stores one plant after the other. A plant is sent again until it is answered.
 */
async function storePlants() {
  while (kills < KILLS) {
    const id = nextId++;
    const plant = { id, name: `plant ${id}`, tag: 'indoor' };
    let status;
    while (status === undefined) status = await send(plant, await service).catch(() => undefined);
    if (status !== 200) throw new Error(`${plant.name} was answered with ${status}`);
    acknowledged.push(plant);
  }
}

function send(plant, { url, token }) {
  const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
  return new Promise((resolve, reject) =>
    request(`${url}/plants`, { method: 'POST', agent, headers })
      .on('response', (res) => {
        res
          .resume()
          .on('end', () => resolve(res.statusCode))
          .on('error', reject);
      })
      .on('error', reject)
      .end(JSON.stringify(plant)),
  );
}

/** Starts the service in the folder. Its only setting is a free port. */
async function start() {
  child = spawn(process.execPath, [SERVER], { cwd: folder, env: { PLANT_STORE_PORT: '0' } });
  ended = once(child, 'exit').then(([code, signal]) => code ?? signal);
  const errors = text(child.stderr);
  const printed = {};
  for await (const line of createInterface({ input: child.stdout })) {
    const [, name, value] = /^(.+?):? (\S+)$/.exec(line);
    printed[name] = value;
    if (name !== 'token') continue;
    return { url: printed['plant-store listening on'], token: readFileSync(value, 'utf8').trim() };
  }
  throw new Error(`the service did not start: ${await errors}`);
}

/** Ends the service, then looks for each acknowledged plant in its log. */
async function stop(signal) {
  child.kill(signal);
  const end = await ended;
  if (end !== 0 && end !== signal) throw new Error(`the service ended with ${end}`);

  // What follows the last newline was cut short by the kill, and was not acknowledged.
  const lines = readFileSync(join(folder, 'data/plants.jsonl'), 'utf8').split('\n').slice(0, -1);
  const stored = new Map(lines.map((line) => JSON.parse(line)).map((plant) => [plant.id, plant]));
  for (const { id, name, tag } of acknowledged) {
    const plant = stored.get(id);
    if (plant?.name !== name || plant.tag !== tag) lost++;
  }
  if (lost > 0) throw new Error('plants that were answered with 200 are not in the log');
}

function draw(end = '') {
  if (!isTTY && end === '') return;
  const line = `kills ${kills}   acknowledged ${acknowledged.length.toLocaleString('en')}   lost ${lost}`;
  process.stdout.write(`${isTTY ? '\r' : ''}${line}${end}`);
}
