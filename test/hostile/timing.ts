import { strict as assert } from 'node:assert';
import { randomInt } from 'node:crypto';

import { createAuthenticator } from '../../dist/auth.js';
import type { Case } from '../faults/case.js';

/** Says whether a token is the right one. */
type Comparison = (token: string) => boolean;

const SECRET = 'Zk3vQ8sW1xYb7TnC5mLdR0pHjUe2fGaI9oK4tNzB6cVwXyDqErSgMhJuPlAiOkFn'.repeat(4);
const wrong = (length: number): string => '!'.repeat(length).replaceAll('!', '~');

/** Tokens that differ from the secret in where, and in how much of it is right. */
const CLASSES: Readonly<Record<string, string>> = {
  'the first letter is wrong': `~${SECRET.slice(1)}`,
  'the first half is right': SECRET.slice(0, SECRET.length / 2) + wrong(SECRET.length / 2),
  'the last half is right': wrong(SECRET.length / 2) + SECRET.slice(SECRET.length / 2),
  'all but the last letter is right': `${SECRET.slice(0, -1)}~`,
};
const NOTHING_RIGHT = wrong(SECRET.length);

const ROUNDS = 4_000;
const CALLS = 40;
/** What |t| stays below by chance, in all but one of some ten million tests. */
const CHANCE = 5.5;

const theirs: Comparison = ((authenticate) => (token: string) => {
  headers[1] = `Bearer ${token}`;
  return authenticate(headers) === undefined;
})(createAuthenticator([SECRET]));
const headers = ['Authorization', ''];

/** Stops at the first letter that differs: what a naive comparison does, and no slower. */
const leaky: Comparison = (token) => {
  if (token.length !== SECRET.length) return false;
  for (let i = 0; i < SECRET.length; i++)
    if (token.charCodeAt(i) !== SECRET.charCodeAt(i)) return false;
  return true;
};

export const timingCases: Case[] = [
  {
    promise: 'the time of a comparison does not tell where and how much of a token is right',
    check: async () => {
      const values = measure(theirs);
      for (const [name, t] of values) assert.ok(Math.abs(t) < CHANCE, `${name}: t = ${t.toFixed(1)}`);
      return seen(values);
    },
  },
  {
    promise: 'that would be noticed: a comparison that stops at the first difference is caught',
    check: async () => {
      const values = measure((token) => (theirs(token), leaky(token)));
      const t = values.get('all but the last letter is right') ?? 0;
      assert.ok(t > 2 * CHANCE, `t = ${t.toFixed(1)}`);
      return seen(values);
    },
  },
];

/** Welch's t of each class of tokens against one in which nothing is right. */
function measure(comparison: Comparison): Map<string, number> {
  const entries = [...Object.entries(CLASSES), ['again nothing', NOTHING_RIGHT] as const];
  const tokens = [NOTHING_RIGHT, ...entries.map(([, token]) => token)].map(flat);
  const times = tokens.map(() => new Float64Array(ROUNDS));
  // One time for the compiler.
  for (let n = 0; n < 20_000; n++) comparison(tokens[n % tokens.length] ?? '');
  for (let round = 0; round < ROUNDS; round++) {
    const order = shuffled(tokens.length);
    for (const each of order) (times[each] as Float64Array)[round] = timeOf(comparison, tokens[each] ?? '');
  }
  const [base = [], ...others] = times.map(withoutOutliers);
  return new Map(entries.map(([name], n) => [name, welch(others[n] ?? [], base)]));
}

/** A string of its own, in one piece: as it comes from a socket. */
function flat(text: string): string {
  return Buffer.from(text).toString('latin1');
}

function timeOf(comparison: Comparison, token: string): number {
  const startedAt = process.hrtime.bigint();
  for (let n = 0; n < CALLS; n++) comparison(token);
  return Number(process.hrtime.bigint() - startedAt);
}

function shuffled(length: number): number[] {
  const order = Array.from({ length }, (_, n) => n);
  for (let n = length - 1; n > 0; n--) {
    const other = randomInt(n + 1);
    [order[n], order[other]] = [order[other] as number, order[n] as number];
  }
  return order;
}

/** The faster half: the slower ones tell of other processes and of garbage. */
function withoutOutliers(times: Float64Array): number[] {
  return [...times].sort((a, b) => a - b).slice(0, times.length / 2);
}

function welch(one: readonly number[], other: readonly number[]): number {
  const [a, b] = [moments(one), moments(other)];
  return (a.mean - b.mean) / Math.sqrt(a.variance / one.length + b.variance / other.length);
}

function moments(values: readonly number[]): { mean: number; variance: number } {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, variance: squares / (values.length - 1) };
}

function seen(values: ReadonlyMap<string, number>): string {
  return [...values].map(([name, t]) => `${name}: t = ${t.toFixed(1)}`).join(', ');
}
