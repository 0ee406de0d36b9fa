/** Random numbers, the same ones for the same seed. */
export interface Random {
  /** A number from 0 up to but not including 1. */
  (): number;
  /** An integer from 0 up to but not including `end`. */
  below(end: number): number;
  /** True with a probability. */
  chance(probability: number): boolean;
  /** One of the elements. */
  pick<T>(from: readonly T[]): T;
}

/** Uses mulberry32. */
export function createRandom(seed: number): Random {
  let state = seed | 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
  const below = (end: number): number => Math.floor(next() * end);
  return Object.assign(next, {
    below,
    chance: (probability: number) => next() < probability,
    pick: <T>(from: readonly T[]): T => from[below(from.length)] as T,
  });
}
