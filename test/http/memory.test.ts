import t from 'tap';

import { DEFAULT_LIMITS } from '../../dist/http/limits.js';
import { memoryForBody } from '../../dist/http/memory.js';
import { chunk, CHUNKED, exchange, FERN, isFailure, message } from '../client.js';
import { serve } from '../service.js';
import { gatedStore } from '../stores.js';

t.test('a body counts several times, but its copies for at most half of the budget', async (t) => {
  const limits = { ...DEFAULT_LIMITS, maxBodyBytes: 100_000, maxBufferedBytes: 150_000 };
  t.equal(memoryForBody(1_000, limits), 4_000, 'four times');
  t.equal(memoryForBody(50_000, limits), 75_000, 'half of the budget');
  t.equal(memoryForBody(100_000, limits), 100_000, 'the size of the body');
});

/** Requests, each of which takes more memory than a small one in one way. */
const ROWS = {
  'a long target': message({ target: `/plants?${'x'.repeat(5_000)}` }),
  'a long header line': message({ headers: { Cookie: 'x'.repeat(5_000) } }),
  'many header lines': message({
    headers: Object.fromEntries(Array.from({ length: 40 }, (_, n) => [`X-${n}`, ''])),
  }),
  'a body': message({ body: '{"id":7,"name":"fern"}'.padEnd(1_300) }),
  trailers: message({
    headers: CHUNKED,
    body: Buffer.concat([chunk(FERN), Buffer.from(`0\r\nX: ${'x'.repeat(5_000)}\r\n\r\n`)]),
  }),
};

for (const [about, request] of Object.entries(ROWS))
  t.test(`${about} counts in the memory of a request`, async (t) => {
    const store = gatedStore();
    const { port } = await serve(t, {
      store,
      maxBodyBytes: 2_000,
      maxBufferedBytes: 12_000,
    });
    const waiting = [exchange(t, port, message()), exchange(t, port, message())];
    await store.arrived(2);
    isFailure(t, await exchange(t, port, request), { status: 503 }, 'it does not fit');
    waiting.push(exchange(t, port, message()));
    await store.arrived(3);
    store.letGo();
    for (const { status } of await Promise.all(waiting)) t.equal(status, 200, 'a small one does');
  });
