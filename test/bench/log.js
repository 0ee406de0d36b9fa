/**
 * Measures a log of many plants: the time to open it, its memory, and durable adds:
 *
 *   npm run bench:log -- [--plants 10000000] [--rounds 3] [--folder /tmp]
 *
 * The logs are generated in a temporary folder. The index is grown to twice the number of plants,
 * and once to ten times, without a log, to save disk space. Every measurement runs in its own
 * process, and those that are compared alternate, so that other load on the machine affects all of
 * them. The exit code is 0 whatever the figures are, and 1 if something fails.
 */

import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { machine, table } from './log/report.js';
import { run, start } from './measure.js';
import { median } from './report.js';
import { count, refuseMemory, temporaryFolder } from './setup.js';

const READERS = ['plant-store', 'JSON.parse, Set', 'JSON.parse'];
const INDEXES = ['plant-store', 'flat array'];
const ADD_SECONDS = 0.5;
/** Two processes that run the same code differ in speed, so several pairs are started. */
const ADD_PAIRS = 5;
const ADD_ROUNDS = 7;
/** More than all adds together write. */
const TOUCHED_BYTES = 2 ** 31;

try {
  const settings = readSettings(process.argv.slice(2));
  prepare(settings);
  console.log(`${machine()}\n`);
  console.log(table(await measureAll(settings), settings));
} catch (error) {
  console.error(`bench: ${error.message}`);
  process.exit(1);
}

function readSettings(args) {
  const { values } = parseArgs({
    args,
    options: {
      plants: { type: 'string', default: '10000000' },
      rounds: { type: 'string', default: '3' },
      folder: { type: 'string', default: tmpdir() },
    },
  });
  return {
    folder: values.folder,
    plants: count('plants', values.plants),
    rounds: count('rounds', values.rounds),
  };
}

function prepare({ folder }) {
  if (!existsSync(script('../../../dist/index.js')))
    throw new Error('dist is missing: npm run build');
  refuseMemory(folder);
}

async function measureAll({ folder: parent, plants, rounds }) {
  const folder = temporaryFolder(parent);
  const logs = {
    sequential: join(folder, 'sequential.jsonl'),
    shuffled: join(folder, 'shuffled.jsonl'),
    empty: join(folder, 'empty'),
  };
  const stalls = await measureStalls(2 * plants, rounds);
  const memory = await measureMemory(plants);

  for (const order of ['sequential', 'shuffled']) {
    say(`writing ${plants.toLocaleString('en')} plants, ids ${order}`);
    await node('generate.js', logs[order], plants, order);
  }
  const readings = await measureReading(logs, rounds);
  await rm(logs.shuffled);
  const adds = await measureAdds(logs.empty, logs.sequential);
  return { readings, memory, stalls, adds };
}

/** How long the index blocks the event loop while it grows. */
async function measureStalls(plants, rounds) {
  const stalls = [];
  for (let round = 1; round <= rounds; round++)
    for (const index of INDEXES)
      stalls.push({ round, index, ...(await grow(index, plants, 'stall')) });
  const map = await grow('Map', plants, 'stall');
  return { ours: stalls, map };
}

async function measureMemory(plants) {
  const ours = await grow('plant-store', 10 * plants, 'memory');
  const map = await grow('Map', 2 * plants, 'memory');
  return { ours, map };
}

/** Each round starts with another reader. */
async function measureReading(logs, rounds) {
  const all = [
    ...READERS.map((reader) => ({ reader, order: 'sequential' })),
    { reader: 'plant-store', order: 'shuffled' },
    { reader: 'JSON.parse', order: 'shuffled' },
  ];
  const readings = [];
  for (let round = 1; round <= rounds; round++) {
    const first = (round - 1) % all.length;
    for (const { reader, order } of [...all.slice(first), ...all.slice(0, first)])
      readings.push({ round, reader, order, ...(await read(reader, logs[order])) });
  }
  return readings;
}

async function measureAdds(empty, full) {
  // A virtual machine may get memory only on first use, which would slow down the first log.
  await run(process.execPath, ['--eval', `Buffer.alloc(${TOUCHED_BYTES}, 1)`]);
  const rounds = [];
  for (let pair = 1; pair <= ADD_PAIRS; pair++) {
    // A new file for each pair: rewriting blocks of an earlier file may be faster.
    rounds.push(...(await measurePair([`${empty}-${pair}`, full])));
  }
  return rounds;
}

/** The two logs alternate, and so does the one that starts. */
async function measurePair(paths) {
  const adders = [];
  for (const path of paths) {
    const child = start(process.execPath, [script('adds.js'), path, ADD_SECONDS], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    adders.push({ child, lines, plants: Number(await next(lines)) });
  }
  const rounds = [];
  for (let round = 0; round <= ADD_ROUNDS; round++) {
    const rates = [];
    for (const which of round % 2 === 0 ? [0, 1] : [1, 0]) {
      adders[which].child.stdin.write('\n');
      rates[which] = Number(await next(adders[which].lines));
    }
    // The first round warms up.
    if (round > 0) rounds.push({ empty: rates[0], full: rates[1] });
  }
  for (const { child } of adders) {
    const ended = once(child, 'exit');
    child.stdin.end();
    await ended;
  }
  const [inEmpty, inFull] = ['empty', 'full'].map((log) =>
    Math.round(median(rounds.map((round) => round[log]))).toLocaleString('en'),
  );
  say(`durable adds a second: ${inEmpty} into a new log, ${inFull} into the long one`);
  return rounds;
}

async function next(lines) {
  const { value, done } = await lines.next();
  if (done) throw new Error('adds.js ended by itself');
  return value;
}

async function read(reader, path) {
  const result = JSON.parse(await node('read.js', reader, path));
  const plants = result.plants.toLocaleString('en');
  say(`${reader} reads ${plants} plants in ${result.seconds.toFixed(2)} s`);
  return result;
}

async function grow(index, plants, figure) {
  const output = await node('grow.js', index, plants, figure);
  const result = JSON.parse(output);
  const { size, end, seconds } = result;
  say(`${index} to ${size.toLocaleString('en')} (${end}), ${figure}: ${seconds.toFixed(1)} s`);
  return result;
}

function node(name, ...args) {
  return run(process.execPath, ['--expose-gc', script(name), ...args]);
}

function script(name) {
  return fileURLToPath(new URL(`log/${name}`, import.meta.url));
}

function say(sentence) {
  console.error(sentence);
}
