/*
 * How much the tests try, from the environment variable TEST_LENGTH. `short` is the default. The
 * groups `crash` and `crash-states` use `medium`. With `long`, many other tests try more, too.
 */
const { TEST_LENGTH = 'short', TEST_SEED } = process.env;
if (!['short', 'medium', 'long'].includes(TEST_LENGTH))
  throw new RangeError('TEST_LENGTH: must be short, medium or long');

export const isLong = TEST_LENGTH === 'long';

/** Returns the value for the TEST_LENGTH of this run. */
export function byLength<T>(short: T, medium: T, long: T): T {
  if (isLong) return long;
  return TEST_LENGTH === 'medium' ? medium : short;
}

/** The seed of random choices: TEST_SEED, or else a new one. */
export const seed = Number(TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));
if (!Number.isSafeInteger(seed)) throw new RangeError('TEST_SEED: must be an integer');
