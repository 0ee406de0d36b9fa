import t from 'tap';

import { DEFAULT_LIMITS, MAX_LIMITS, memoryFor, resolveLimits } from '../../dist/http/limits.js';

const NAMES = ['maxBodyBytes', 'maxBufferedBytes', 'bodyTimeoutMs'] as const;

t.test('a limit that is omitted has its default', async (t) => {
  t.strictSame(resolveLimits({}), DEFAULT_LIMITS);
  t.strictSame(resolveLimits({ maxBodyBytes: 5 }), { ...DEFAULT_LIMITS, maxBodyBytes: 5 });
  const undefinedLimit: object = { maxBodyBytes: undefined };
  t.strictSame(resolveLimits(undefinedLimit), DEFAULT_LIMITS);
});

t.test('a limit must be an integer between 1 and its maximum', async (t) => {
  t.strictSame(Object.keys(DEFAULT_LIMITS), NAMES);
  t.strictSame(resolveLimits(MAX_LIMITS), MAX_LIMITS);
  t.doesNotThrow(() => resolveLimits({ maxBodyBytes: 1, maxBufferedBytes: 1, bodyTimeoutMs: 1 }));
  for (const name of NAMES) {
    const max = MAX_LIMITS[name];
    for (const value of [0, -1, 1.5, NaN, Infinity, '5', '', true, [5], 5n, max + 1])
      t.throws(
        () => resolveLimits({ [name]: value }),
        { name: 'RangeError', message: `${name}: must be an integer between 1 and ${max}` },
        `${name}: ${typeof value} ${String(value)}`,
      );
  }
});

t.test('maxBufferedBytes must not be less than maxBodyBytes', async (t) => {
  const message = 'maxBufferedBytes: must not be less than maxBodyBytes';
  t.doesNotThrow(() => resolveLimits({ maxBodyBytes: 100, maxBufferedBytes: 100 }));
  t.throws(() => resolveLimits({ maxBodyBytes: 100, maxBufferedBytes: 99 }), { message });
  t.throws(() => resolveLimits({ maxBufferedBytes: 1_048_575 }), { message });
});

const FEW_LINES = { rawHeaders: ['Host', 'a'] };

t.test('a request reserves a multiple of its body, within bounds', async (t) => {
  const limits = { ...DEFAULT_LIMITS, maxBodyBytes: 100_000, maxBufferedBytes: 150_000 };
  t.equal(memoryFor(FEW_LINES, 0, limits), 4_096, 'the minimum for a request');
  t.equal(memoryFor(FEW_LINES, 1_024, limits), 4_096);
  t.equal(memoryFor(FEW_LINES, 1_025, limits), 4_100, 'four times the body');
  t.equal(memoryFor(FEW_LINES, 50_000, limits), 75_000, 'half of the budget');
  t.equal(memoryFor(FEW_LINES, 100_000, limits), 100_000, 'the size of the body');
  t.equal(memoryFor(FEW_LINES, 0, { ...limits, maxBufferedBytes: 100 }), 100, 'all of the budget');

  const manyLines = { rawHeaders: Array<string>(200).fill('a') };
  t.equal(memoryFor(manyLines, 0, limits), 25_600, '256 bytes for each header line');
  t.equal(memoryFor(manyLines, 10_000, limits), 40_000);
});
