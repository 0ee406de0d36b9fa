import t from 'tap';

import { DEFAULT_LIMITS, MAX_LIMITS, resolveLimits } from '../../dist/http/memory.js';

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
  t.doesNotThrow(() => resolveLimits({ maxBodyBytes: 1, maxBufferedBytes: 8, bodyTimeoutMs: 1 }));
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

t.test('maxBufferedBytes must be at least eight times maxBodyBytes', async (t) => {
  const message = 'maxBufferedBytes: must be at least eight times maxBodyBytes';
  t.doesNotThrow(() => resolveLimits({ maxBodyBytes: 100, maxBufferedBytes: 800 }));
  t.throws(() => resolveLimits({ maxBodyBytes: 100, maxBufferedBytes: 799 }), { message });
  t.throws(() => resolveLimits({ maxBufferedBytes: 8_388_607 }), { message });
});
