/**
 * Reads a log with one of several readers and prints the time and memory it took:
 *
 *   node --expose-gc read.js READER FILE
 */

import { createReadStream } from 'node:fs';
import { openPlantLog } from '../../../dist/index.js';

const CHUNK_BYTES = 262_144;
const NEWLINE = 0x0a;

const READERS = {
  async 'plant-store'(path) {
    let progressCalls = 0;
    const log = await openPlantLog(path, { onProgress: () => progressCalls++ });
    return { plants: log.size, progressCalls, kept: log };
  },
  /** Detects duplicates, as a store must; ids beyond 2^53 would lose precision. */
  async 'JSON.parse, Set'(path) {
    const ids = new Set();
    for await (const lines of chunksOf(path)) {
      for (const line of lines) {
        const { id } = JSON.parse(line);
        if (ids.has(id)) throw new Error(`${id} is not unique`);
        ids.add(id);
      }
    }
    return { plants: ids.size, kept: ids };
  },
  async 'JSON.parse'(path) {
    let plants = 0;
    for await (const lines of chunksOf(path)) {
      for (const line of lines) {
        JSON.parse(line);
        plants++;
      }
    }
    return { plants };
  },
};

const [reader, path] = process.argv.slice(2);
const before = memory();
const startedAt = performance.now();
const { kept, ...result } = await READERS[reader](path);
const seconds = (performance.now() - startedAt) / 1000;
const held = memory() - before;
const peak = process.resourceUsage().maxRSS * 1024;
await kept?.close?.();
console.log(JSON.stringify({ ...result, seconds, held, peak }));

/** The lines of a file, chunk by chunk; decoding a whole chunk into one string is the fastest. */
async function* chunksOf(path) {
  let rest = Buffer.alloc(0);
  for await (const chunk of createReadStream(path, { highWaterMark: CHUNK_BYTES })) {
    const end = chunk.lastIndexOf(NEWLINE);
    if (end < 0) {
      rest = Buffer.concat([rest, chunk]);
      continue;
    }
    yield Buffer.concat([rest, chunk.subarray(0, end)])
      .toString()
      .split('\n');
    rest = chunk.subarray(end + 1);
  }
}

/** Live memory in bytes: the heap and buffers outside it. */
function memory() {
  globalThis.gc();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
