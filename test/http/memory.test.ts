import t from 'tap';

import { createBudget } from '../../dist/http/memory.js';
import { REPORT_RATE } from '../../dist/report.js';
import { chunk, CHUNKED, chunkedMessage, exchange, FERN, isFailure, message } from '../client.js';
import { serve, whenServed } from '../service.js';
import { gatedStore } from '../stores.js';
import { plantOf } from './support.js';

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
    const { port } = await serve(t, { store, maxBodyBytes: 1_500, maxBufferedBytes: 12_000 });
    const small = [1, 2].map(() => exchange(t, port, message()));
    await store.arrived(2);
    isFailure(t, await exchange(t, port, request), { status: 503 }, 'it does not fit');
    small.push(exchange(t, port, message()));
    await store.arrived(3);
    store.letGo();
    for (const { status } of await Promise.all(small)) t.equal(status, 200, 'a small one does');
  });

t.test('the memory of all requests is limited, which is reported', async (t) => {
  const store = gatedStore();
  const reports: string[] = [];
  const report = (message: string) => void reports.push(message);
  // Each body counts four times, and each head about 3,700 bytes.
  const limits = { maxBodyBytes: 10_000, maxBufferedBytes: 131_000 };
  const { port } = await serve(t, { store, report, ...limits });
  const request = message({ body: plantOf(10_000) });
  const waiting = [whenServed(t, port, request), whenServed(t, port, request)];
  await store.arrived(2);
  const overloaded = { status: 503, headers: { 'retry-after': '1' } };
  isFailure(t, await exchange(t, port, request), overloaded, 'a third does not fit');
  waiting.push(whenServed(t, port, message({ body: plantOf(9_900) })));
  await store.arrived(3);
  for (let n = 0; n < 12; n++)
    isFailure(t, await exchange(t, port, message()), overloaded, 'no other plant fits');
  t.equal(reports.length, REPORT_RATE.count, 'not each time');
  t.match(
    reports.at(-1),
    /^overloaded: requests hold \d+ bytes \(maxBufferedBytes, PLANT_STORE_MA/,
  );
  store.letGo();
  t.strictSame(await Promise.all(waiting), [200, 200, 200]);
  t.equal(await whenServed(t, port, request), 200, 'the memory is released');
});

t.test('a body of the limit fits into the smallest budget, however it is split', async (t) => {
  for (const size of [FERN.length, 10_000]) {
    const { port } = await serve(t, { maxBodyBytes: size, maxBufferedBytes: 8 * size });
    const body = plantOf(size);
    for (const at of [1, 3_000, 4_095, 4_096, 4_097, 5_001, 9_999].filter((at) => at < size)) {
      const request = chunkedMessage(body.slice(0, at), body.slice(at));
      t.equal((await exchange(t, port, request)).status, 200, `${size} bytes, split at ${at}`);
    }
  }
});

t.test('a reservation grows within the budget, and can be given back in parts', async (t) => {
  const budget = createBudget(100);
  const first = budget.reserve(60);
  t.equal(budget.reserve(41), undefined, 'one more than is left');
  const second = budget.reserve(40);
  t.equal(first?.growBy(1), false, 'nothing is left');
  t.ok(first?.growBy(0));
  t.equal(budget.reserved, 100, 'what was refused is not reserved');
  second?.shrinkTo(10);
  t.equal(budget.reserved, 70);
  second?.shrinkTo(0);
  t.ok(first?.growBy(50), 'as far as the whole budget');
  t.notOk(budget.reserve(1));
  first?.shrinkTo(0);
  first?.shrinkTo(0);
  t.equal(budget.reserved, 0, 'releasing twice counts once');
  t.ok(budget.reserve(200), 'all of it');
  t.notOk(budget.reserve(1));
});
