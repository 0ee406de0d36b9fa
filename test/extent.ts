/* How much the long checks try, from the environment. */

/** `TEST_SHORT=1` selects the short forms, for every change. */
export const isShort = process.env.TEST_SHORT === '1';

/** The number of rounds of a random check: `TEST_ROUNDS`, or else the check's own number. */
export function roundsOr(fallback: number): number {
  const rounds = Number(process.env.TEST_ROUNDS ?? fallback);
  if (!Number.isInteger(rounds) || rounds < 1) throw new RangeError('TEST_ROUNDS: not positive');
  return rounds;
}

/** The seed of random choices: `TEST_SEED`, or else a new one. */
export const seed = Number(process.env.TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));
