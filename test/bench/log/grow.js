/**
 * Adds plants to an index until it has all, takes no more or time is up, and prints how it went:
 *
 *   node --expose-gc grow.js INDEX PLANTS memory|stall SECONDS [FOLDER]
 *
 * It adds a few plants in each turn of the event loop, as plants that arrive do.
 */

import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';
import Datastore from '@seald-io/nedb';
import { createIdIndex } from '../../../dist/log/id-index.js';

const PLANTS_PER_TURN = 256;
const LINE_BYTES = 70;
const WORD = 2 ** 32;
const FLAT_SLOTS = 2 ** 25;
const FLAT_SHIFT = 32 - 25;
const GOLDEN = 0x9e3779b1;
/** Plants between two looks at the memory. */
const LOOK_EVERY = 250_000;
/** Bytes a plant say little about a small index. */
const SMALL = 1_000_000;

const [name, plants, figure, seconds, folder] = process.argv.slice(2);

/** Each takes the ids of a turn: whole numbers from `first` on, up to but not including `end`. */
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
  NeDB() {
    const db = new Datastore({ filename: join(folder, 'plants.db'), autoload: true });
    return {
      async add(first, end) {
        const ids = Array.from({ length: end - first }, (_, n) => first + n);
        await db.insertAsync(ids.map((_id) => ({ _id, name: 'Boston fern', tag: 'indoor' })));
      },
      has: async (_id) => (await db.findOneAsync({ _id })) !== null,
    };
  },
  /** Memory that never grows: what the machine alone does to the event loop. */
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

// The code is compiled, and what that took is garbage, before memory is looked at.
if (name === 'plant-store') INDEXES[name]().add(1, SMALL / 10);
await nextTurn();
globalThis.gc();
await nextTurn();

const before = memory();
const residentBefore = process.memoryUsage.rss();
const index = INDEXES[name]();
const looks = [];
const delay = monitorEventLoopDelay({ resolution: 1 });
if (figure === 'stall') delay.enable();
const result = await grow();
delay.disable();
await check(result.size);
console.log(JSON.stringify({ ...result, stall: delay.max / 1e6, looks }));

async function grow() {
  const startedAt = performance.now();
  const deadline = startedAt + Number(seconds) * 1000;
  let size = 0;
  let end = 'has all';
  let turnCpu = 0;
  while (size < Number(plants)) {
    if (performance.now() > deadline) {
      end = 'time is up';
      break;
    }
    const lookAt = Math.min(size - (size % LOOK_EVERY) + LOOK_EVERY, Number(plants));
    const next = Math.min(size + PLANTS_PER_TURN, lookAt);
    const cpuBefore = process.cpuUsage();
    try {
      await index.add(size + 1, next + 1);
    } catch (error) {
      end = error.message;
      size = index.size?.() ?? size;
      break;
    }
    const { user, system } = process.cpuUsage(cpuBefore);
    turnCpu = Math.max(turnCpu, (user + system) / 1000);
    size = next;
    if (figure === 'memory' && size === lookAt) look(size);
    await nextTurn();
  }
  return { size, end, turnCpu, seconds: (performance.now() - startedAt) / 1000 };
}

function look(size) {
  const bytes = memory() - before;
  const resident = process.memoryUsage.rss() - residentBefore;
  if (size >= SMALL || size === Number(plants)) looks.push({ size, bytes, resident });
}

/** What is alive, in bytes: the heap, and the buffers beside it. */
function memory() {
  globalThis.gc();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** It finds what was added, and nothing else. */
async function check(size) {
  const step = Math.ceil(size / 1000);
  for (let id = 1; id <= size; id += step)
    if (!(await index.has(id))) throw new Error(`${name} has lost ${id}`);
  if (await index.has(size + PLANTS_PER_TURN)) throw new Error(`${name} finds what is not there`);
}
