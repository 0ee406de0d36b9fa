import { strict as assert } from 'node:assert';
import { randomBytes, randomInt } from 'node:crypto';

import { createAuthenticator } from '../../dist/http/auth.js';
import type { Case } from '../faults/case.js';

/** Says whether a token is the right one. */
type Comparison = (token: string) => boolean;
/** Makes a comparison with a secret. */
type Compare = (secret: string) => Comparison;

const LENGTH = 256;
/** The token that is presented, always the same: only what it is compared with differs. */
const TOKEN = random(LENGTH);

/** Secrets of which the token has nothing right, or some, or nearly all. */
const SECRETS: Readonly<Record<string, () => string>> = {
  'nothing right': () => random(LENGTH),
  'all right but the first letter': () => `~${TOKEN.slice(1)}`,
  'the first half right': () => TOKEN.slice(0, LENGTH / 2) + random(LENGTH / 2),
  'the last half right': () => random(LENGTH / 2) + TOKEN.slice(LENGTH / 2),
  'all right but the last letter': () => `${TOKEN.slice(0, -1)}~`,
  'all right, and a letter too many': () => TOKEN.slice(0, -1),
  'all right, and half is missing': () => TOKEN + random(200),
  'another length': () => random(16),
};

const ROUNDS = 4_000;
/** How many calls are timed together. */
const CALLS = 40;
/** After so many rounds all comparisons are made anew, elsewhere in memory. */
const ANEW = 40;
/** A leak shows every time; a machine that is busy with something else, now and then. */
const ATTEMPTS = 4;
/** What |t| stays below by chance, but for once in millions. */
const CHANCE = 5.5;

const theirs: Compare = (secret) => {
  const authenticate = createAuthenticator([secret]);
  const rawHeaders = ['Authorization', ''];
  return (token) => {
    rawHeaders[1] = `Bearer ${token}`;
    return authenticate({ rawHeaders }) === undefined;
  };
};

/** Stops at the first letter that differs. */
const leaky: Compare = (secret) => {
  const rest = theirs(secret);
  return (token) => {
    rest(token);
    for (let i = 0; i < secret.length; i++)
      if (token.charCodeAt(i) !== secret.charCodeAt(i)) return false;
    return token.length === secret.length;
  };
};

export const timingCases: Case[] = [
  {
    promise: 'the time of a comparison does not tell where and how much of a token is right',
    async check() {
      const seen = attempts(theirs);
      assert.ok(seen.some(isEven), describe(seen));
      return describe(seen);
    },
  },
  {
    promise: 'that would be noticed: a comparison that stops at the first difference is caught',
    async check() {
      const seen = attempts(leaky);
      assert.ok(!seen.some(isEven), describe(seen));
      return describe(seen.slice(-1));
    },
  },
];

function attempts(compare: Compare): Map<string, number>[] {
  const seen: Map<string, number>[] = [];
  while (seen.length < ATTEMPTS && !seen.some(isEven)) seen.push(measure(compare));
  return seen;
}

function isEven(values: ReadonlyMap<string, number>): boolean {
  return [...values.values()].every((t) => Math.abs(t) < CHANCE);
}

/** Welch's t of each kind of secret against one of which nothing is right. */
function measure(compare: Compare): Map<string, number> {
  const secrets = Object.values(SECRETS);
  const times = secrets.map(() => new Float64Array(ROUNDS));
  let comparisons = secrets.map((secret) => compare(secret()));
  // So that all of it is compiled.
  for (let n = 0; n < 20_000; n++) comparisons[n % comparisons.length]?.(TOKEN);
  for (let round = 0; round < ROUNDS; round++) {
    if (round % ANEW === 0) comparisons = secrets.map((secret) => compare(secret()));
    for (const n of shuffled(secrets.length))
      (times[n] as Float64Array)[round] = timeOf(comparisons[n] as Comparison);
  }
  const [base = [], ...others] = times.map(fasterHalf);
  const names = Object.keys(SECRETS).slice(1);
  return new Map(names.map((name, n) => [name, welch(others[n] ?? [], base)]));
}

/** In ns. */
function timeOf(comparison: Comparison): number {
  const startedAt = process.hrtime.bigint();
  for (let n = 0; n < CALLS; n++) comparison(TOKEN);
  return Number(process.hrtime.bigint() - startedAt);
}

function random(length: number): string {
  return randomBytes(length).toString('base64url').slice(0, length);
}

function shuffled(length: number): number[] {
  const order = Array.from({ length }, (_, n) => n);
  for (let n = length - 1; n > 0; n--) {
    const other = randomInt(n + 1);
    [order[n], order[other]] = [order[other] as number, order[n] as number];
  }
  return order;
}

/** The slower half tells of other processes, and of garbage. */
function fasterHalf(times: Float64Array): number[] {
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

function describe(seen: readonly Map<string, number>[]): string {
  return seen
    .map((values) => [...values].map(([name, t]) => `${name}: t = ${t.toFixed(1)}`).join(', '))
    .join('; then ');
}
