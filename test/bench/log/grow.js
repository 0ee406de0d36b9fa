/**
 * Adds plants to an index until all are added or it fails, and prints the result:
 *
 *   node --expose-gc grow.js INDEX PLANTS memory|stall
 *
 * It adds a batch of plants in each iteration of the event loop, like a server under load.
 */

import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { createIdIndex } from '../../../dist/log/id-index.js';

const PLANTS_PER_TURN = 256;
const LINE_BYTES = 70;
const WORD = 2 ** 32;
const FLAT_SLOTS = 2 ** 25;
const FLAT_SHIFT = 32 - 25;
const GOLDEN = 0x9e3779b1;
/** Plants between two samples of memory. */
const SAMPLE_EVERY = 250_000;
/** Bytes per plant are not representative of a smaller index. */
const SMALL = 1_000_000;

const [name, plants, figure] = process.argv.slice(2);

/** `add` gets the ids of one batch: all integers from `first` up to but not including `end`. */
const INDEXES = {
  'plant-store'() {
    const index = createIdIndex();
    return {
      add(first, end) {
        for (let id = first; id < end; id++) index.add(id | 0, (id / WORD) | 0, id * LINE_BYTES);
      },
      has: (id) => index.get(id | 0, (id / WORD) | 0) === id * LINE_BYTES,
    };
  },
  Map() {
    const index = new Map();
    return {
      add(first, end) {
        for (let id = first; id < end; id++) if (!index.has(id)) index.set(id, id * LINE_BYTES);
      },
      has: (id) => index.has(id),
      size: () => index.size,
    };
  },
  /** Does not grow: shows how long the machine alone delays the event loop. */
  'flat array'() {
    const slots = new Float64Array(FLAT_SLOTS).fill(0);
    return {
      add(first, end) {
        for (let id = first; id < end; id++) slots[Math.imul(id, GOLDEN) >>> FLAT_SHIFT] = id;
      },
      has: (id) => id <= Number(plants),
    };
  },
};

// Compiles the code, and collects the garbage of that, before memory is measured.
if (name === 'plant-store') INDEXES[name]().add(1, SMALL / 10);
await nextTurn();
globalThis.gc();
await nextTurn();

const before = memory();
const residentBefore = process.memoryUsage.rss();
const index = INDEXES[name]();
const samples = [];
const delay = monitorEventLoopDelay({ resolution: 1 });
if (figure === 'stall') delay.enable();
const result = await grow();
delay.disable();
check(result.size);
console.log(JSON.stringify({ ...result, stall: delay.max / 1e6, samples }));

async function grow() {
  const startedAt = performance.now();
  let size = 0;
  let end = 'complete';
  let turnCpu = 0;
  while (size < Number(plants)) {
    const sampleAt = Math.min(size - (size % SAMPLE_EVERY) + SAMPLE_EVERY, Number(plants));
    const next = Math.min(size + PLANTS_PER_TURN, sampleAt);
    const cpuBefore = process.cpuUsage();
    try {
      index.add(size + 1, next + 1);
    } catch (error) {
      end = error.message;
      size = index.size?.() ?? size;
      break;
    }
    const { user, system } = process.cpuUsage(cpuBefore);
    turnCpu = Math.max(turnCpu, (user + system) / 1000);
    size = next;
    if (figure === 'memory' && size === sampleAt) sample(size);
    await nextTurn();
  }
  return { size, end, turnCpu, seconds: (performance.now() - startedAt) / 1000 };
}

function sample(size) {
  const bytes = memory() - before;
  const resident = process.memoryUsage.rss() - residentBefore;
  if (size >= SMALL || size === Number(plants)) samples.push({ size, bytes, resident });
}

/** Live memory in bytes: the heap and buffers outside it. */
function memory() {
  globalThis.gc();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** The index contains all ids that were added, and no others. */
function check(size) {
  const step = Math.ceil(size / 1000);
  for (let id = 1; id <= size; id += step)
    if (!index.has(id)) throw new Error(`${name} lacks ${id}`);
  if (index.has(size + PLANTS_PER_TURN))
    throw new Error(`${name} contains an id that was not added`);
}
