import t from 'tap';

import {
  createCommitDelay,
  MAX_DELAY_MS,
  TRIAL_SHARE,
  type CommitDelay,
} from '../../dist/log/delay.js';
import { microtasks } from './support.js';

/** A write that took so long, in ms, that every delay pays in which the plants come. */
const SLOW_MS = 1e9;

/** Whether a promise resolves without waiting for anything. */
async function resolvesAtOnce(promise: Promise<void> | undefined): Promise<boolean> {
  let resolved = false;
  void promise?.then(() => (resolved = true));
  await microtasks();
  return resolved;
}

/** Waits for two plants of which only one comes. */
async function fail(delay: CommitDelay, writeMs: number): Promise<void> {
  const delayed = delay.begin(2, 0, writeMs);
  delay.arrived();
  await delayed;
}

t.test('a write waits until as many plants have come as were stored', async (t) => {
  const delay = createCommitDelay();
  delay.arrived();
  const delayed = delay.begin(2, 2, SLOW_MS);
  delay.arrived();
  t.notOk(await resolvesAtOnce(delayed));
  delay.arrived();
  t.ok(await resolvesAtOnce(delayed));
});

t.test('a write does not wait for long where plants do not come', async (t) => {
  const order: number[] = [];
  const delays = [SLOW_MS, 1].map(async (writeMs) => {
    const delay = createCommitDelay();
    await fail(delay, writeMs);
    order.push(writeMs);
    t.equal(delay.begin(1, 0, 0), undefined, 'nor does the next one');
  });
  await Promise.all(delays);
  t.strictSame(order, [1, SLOW_MS], 'and no longer than another write');
});

t.test('a delay that took longer than a write did not pay', async (t) => {
  const delay = createCommitDelay();
  const delayed = delay.begin(1, 0, 0);
  delay.arrived();
  await delayed;
  t.equal(delay.begin(1, 0, 0), undefined);
});

t.test('nothing is waited for where more are waiting than were stored', (t) => {
  t.equal(createCommitDelay().begin(1, 2, SLOW_MS), undefined);
  t.end();
});

t.test('what does not pay is tried again for a small share of the time', async (t) => {
  const delay = createCommitDelay();
  const writeMs = 0.5;
  const start = performance.now();
  await fail(delay, writeMs);
  const lostMs = performance.now() - start;
  let writesMs = 0;
  for (; !delay.begin(1, 0, writeMs); writesMs += writeMs);
  t.ok(writesMs > 0);
  t.ok(writesMs * TRIAL_SHARE < lostMs + writeMs);
});

t.test('a program that was kept by something else does not blame the delay', async (t) => {
  const delay = createCommitDelay();
  const delayed = delay.begin(1, 0, 1);
  for (const end = performance.now() + 20 * MAX_DELAY_MS; performance.now() < end;);
  await delayed;
  let writes = 0;
  for (; !delay.begin(1, 0, 1); writes++);
  t.ok(writes <= MAX_DELAY_MS / TRIAL_SHARE, `tried again after ${writes} writes`);
});

t.test('what has paid for long is given up after it has lost as much as a delay', async (t) => {
  const delay = createCommitDelay();
  for (let paid = 0; paid < 9; paid++) {
    const delayed = delay.begin(1, 0, SLOW_MS);
    delay.arrived();
    t.ok(await resolvesAtOnce(delayed));
  }
  // A timer can be early.
  for (let failed = 0; failed < 3; failed++) await fail(delay, MAX_DELAY_MS);
  t.equal(delay.begin(1, 0, MAX_DELAY_MS), undefined);
});

t.test('a write that seems slow once is not worth more waiting, a slow disk is', async (t) => {
  const busy = createCommitDelay();
  await fail(busy, 0);
  const delays = Array.from({ length: 1000 }, () => busy.begin(1, 0, SLOW_MS));
  t.strictSame(new Set(delays), new Set([undefined]), 'not where writes take no time');

  const slow = createCommitDelay();
  await fail(slow, 1);
  let writes = 0;
  for (; !slow.begin(1, 0, SLOW_MS); writes++);
  t.ok(writes < 1 / TRIAL_SHARE, `tried again after ${writes} writes`);
});
