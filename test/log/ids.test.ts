import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import t from 'tap';

import { createIdIndex } from '../../dist/log/ids.js';
import { MAX_ID, MIN_ID } from '../../dist/plant.js';

/** The number of ids with which every table doubles twice. */
const COUNT = 30_000;

t.test('an index takes at most 40 bytes a plant, at any size', async (t) => {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as () => void;
  /**
   * The bytes of reachable array buffers. Garbage is collected twice, because the first collection
   * may postpone its sweeping.
   */
  function arrayBuffers(): number {
    gc();
    gc();
    return process.memoryUsage().arrayBuffers;
  }
  const before = arrayBuffers();
  const index = createIdIndex();
  const bytesPerPlant: number[] = [];
  // No two ids are neighbours, so that all tables grow at the same rate. Each doubles three times.
  for (let size = 0; size < 100_000; size += 20_000) {
    for (let id = size; id < size + 20_000; id++) index.add(128n * BigInt(id), 64 * id);
    bytesPerPlant.push((arrayBuffers() - before) / index.size);
  }
  t.ok(Math.max(...bytesPerPlant) <= 40, `${bytesPerPlant.map(Math.round).join(', ')} bytes`);
});

t.test('all bytes of an id are hashed at random, so nobody can choose colliding ids', async (t) => {
  const { randomFillSync } = crypto;
  const filled: Uint32Array[] = [];
  crypto.randomFillSync = ((table: Uint32Array) => {
    filled.push(table);
    return randomFillSync(table);
  }) as typeof randomFillSync;
  syncBuiltinESMExports();
  t.teardown(() => {
    crypto.randomFillSync = randomFillSync;
    syncBuiltinESMExports();
  });
  for (let byte = 0; byte < 8; byte++) {
    const index = createIdIndex();
    index.add(MAX_ID, 64);
    const words = filled[byte]?.subarray(256 * byte, 256 * (byte + 1)) ?? [];
    t.equal(words.length, 256, 'each index has words of its own');
    for (const [n, word] of words.entries()) words[n] = ~word;
    t.equal(index.get(MAX_ID), undefined, `the words for byte ${byte} decide on its place`);
  }
});

t.test('ids of 64 bits and offsets far beyond 4 GiB are exact', async (t) => {
  const index = createIdIndex();
  const offsets = [2 ** 32 - 1, 2 ** 32, 2 ** 32 + 1, 2 ** 40 + 1, Number.MAX_SAFE_INTEGER - 1];
  const ids = [MIN_ID, MAX_ID, -1n, -(2n ** 32n), 2n ** 32n];
  for (const [n, id] of ids.entries()) index.add(id, offsets[n] as number);
  t.strictSame(
    ids.map((id) => index.get(id)),
    offsets,
  );
});

/** Sequences of ids, in which some may be repeated. */
const sequences: Record<string, (n: number) => bigint> = {
  'from 0 on': (n) => BigInt(n),
  'from -1 down': (n) => -1n - BigInt(n),
  'multiples of 2^32': (n) => BigInt(n) << 32n,
  'spread over both words, each three times': (n) => BigInt(n % 16_661) * 0x9e3779b97f4a7c15n,
};

for (const [name, idAt] of Object.entries(sequences))
  t.test(`an index finds what a Map finds: ${name}`, async (t) => {
    const index = createIdIndex();
    const map = new Map<bigint, number>();
    let wrong = 0;
    for (let n = 0; n < COUNT; n++) {
      const id = BigInt.asIntN(64, idAt(n));
      const earlier = map.get(id);
      if (earlier === undefined) map.set(id, n);
      if (index.add(id, n) !== earlier) wrong++;
    }
    for (const [id, offset] of map) if (index.get(id) !== offset) wrong++;
    for (let n = 0; n < COUNT; n += 10) {
      const other = BigInt.asIntN(64, idAt(n) ^ 0x5555n);
      if (index.get(other) !== map.get(other)) wrong++;
    }
    t.equal(index.size, map.size);
    t.equal(wrong, 0, 'it agrees with the Map');
  });
