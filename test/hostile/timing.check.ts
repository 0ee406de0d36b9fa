/*
 * Whether the time of a token comparison depends on the secret. Only TEST_LENGTH=long includes
 * it, as it needs a quiet machine.
 */
import { randomBytes } from 'node:crypto';

import t, { type Test } from 'tap';

import { createAuthenticator } from '../../dist/http/auth.js';
import { isLong } from '../length.js';

/** Whether a token is the right one. */
type Comparison = (token: string) => boolean;
/** Creates a comparison with a secret. */
type Compare = (secret: string) => Comparison;

const LENGTH = 256;
/** The token that is presented. It is always the same; only the secrets differ. */
const TOKEN = random(LENGTH);

/** Secrets that agree with the token in nothing, in part, or almost entirely. */
const SECRETS: Readonly<Record<string, () => string>> = {
  'nothing right': () => random(LENGTH),
  'all right but the first letter': () => `~${TOKEN.slice(1)}`,
  'the first half right': () => TOKEN.slice(0, LENGTH / 2) + random(LENGTH / 2),
  'the last half right': () => random(LENGTH / 2) + TOKEN.slice(LENGTH / 2),
  'all right but the last letter': () => `${TOKEN.slice(0, -1)}~`,
  'all right, and one letter too many': () => TOKEN.slice(0, -1),
  'all right, but half is missing': () => TOKEN + random(200),
  'another length': () => random(16),
};

const ROUNDS = 4_000;
/** The number of calls that are timed together. */
const CALLS = 40;
/** After this number of rounds all comparisons are created again, elsewhere in memory. */
const RENEWAL = 40;
/** A leak shows in every attempt, a disturbance by other processes does not. */
const ATTEMPTS = 4;
/** By chance, |t| exceeds this less than once in a million times. */
const CHANCE = 5.5;

const constantTime: Compare = (secret) => {
  const authenticate = createAuthenticator([secret]);
  const rawHeaders = ['Authorization', ''];
  const headers = { authorization: '' };
  return (token) => {
    rawHeaders[1] = headers.authorization = `Bearer ${token}`;
    return authenticate({ rawHeaders, headers }) === undefined;
  };
};

/** A comparison that stops at the first difference. */
const leaky: Compare = (secret) => {
  const rest = constantTime(secret);
  return (token) => {
    rest(token);
    for (let i = 0; i < secret.length; i++)
      if (token.charCodeAt(i) !== secret.charCodeAt(i)) return false;
    return token.length === secret.length;
  };
};

const long = { skip: !isLong && 'needs TEST_LENGTH=long' };

t.test('the time of a comparison does not reveal how much of a token is right', long, async (t) => {
  t.ok(isEven(t, constantTime));
});

t.test('a comparison that stops at the first difference is detected', long, async (t) => {
  t.notOk(isEven(t, leaky));
});

/** Whether the times of no secret differ significantly, at least in one of a few attempts. */
function isEven(t: Test, compare: Compare): boolean {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const [base = [], ...others] = measure(compare);
    const values = others.map((times) => welch(times, base));
    t.comment(values.map((value) => value.toFixed(1)).join());
    if (values.every((value) => Math.abs(value) < CHANCE)) return true;
  }
  return false;
}

/** The times for each kind of secret, without disturbances by other processes and by garbage collection. */
function measure(compare: Compare): number[][] {
  const secrets = Object.values(SECRETS);
  const times = secrets.map((): number[] => []);
  let comparisons = secrets.map((secret) => compare(secret()));
  // Warm-up: all code is compiled afterwards.
  for (let n = 0; n < 20_000; n++) comparisons[n % comparisons.length]?.(TOKEN);
  for (let round = 0; round < ROUNDS; round++) {
    if (round % RENEWAL === 0) comparisons = secrets.map((secret) => compare(secret()));
    const order = comparisons.map((comparison, n) => ({ comparison, n, place: Math.random() }));
    for (const { comparison, n } of order.sort((one, other) => one.place - other.place))
      times[n]?.push(timeOf(comparison));
  }
  return times.map((all) => all.sort((a, b) => a - b).slice(0, ROUNDS / 2));
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

/** Welch's t. */
function welch(one: readonly number[], other: readonly number[]): number {
  const [a, b] = [moments(one), moments(other)];
  return (a.mean - b.mean) / Math.sqrt(a.variance / one.length + b.variance / other.length);
}

function moments(values: readonly number[]): { mean: number; variance: number } {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, variance: squares / (values.length - 1) };
}
