import t from 'tap';

import { createCommitDelay, MAX_PAUSE, type CommitDelay } from '../../dist/log/delay.js';
import { microtasks } from './support.js';

/** A write that took so long, in ms, that every delay pays in which the plants arrive. */
const SLOW_MS = 1e9;

/** Whether a promise resolves without waiting for anything. */
async function resolvesAtOnce(promise: Promise<void> | undefined): Promise<boolean> {
  let resolved = false;
  void promise?.then(() => (resolved = true));
  await microtasks();
  return resolved;
}

/** How many batches leave at once before the next delay begins, which does not pay. */
async function pauseBeforeFailure(delay: CommitDelay): Promise<number> {
  for (let batches = 0; ; batches++) {
    const delayed = delay.begin(1, 0);
    if (delayed === undefined) continue;
    await delayed;
    return batches;
  }
}

t.test('a batch waits until as many plants have arrived as were stored', async (t) => {
  const delay = createCommitDelay();
  delay.arrived();
  const delayed = delay.begin(2, SLOW_MS);
  delay.arrived();
  t.notOk(await resolvesAtOnce(delayed));
  delay.arrived();
  t.ok(await resolvesAtOnce(delayed));
});

t.test('a batch does not wait for long where plants do not arrive', async (t) => {
  const order: number[] = [];
  const delays = [SLOW_MS, 1].map(async (writeMs) => {
    const delay = createCommitDelay();
    const delayed = delay.begin(2, writeMs);
    delay.arrived();
    await delayed;
    order.push(writeMs);
    t.equal(delay.begin(1, writeMs), undefined, 'nor does the next one');
  });
  await Promise.all(delays);
  t.strictSame(order, [1, SLOW_MS], 'and no longer than a write');
});

t.test('a delay that took longer than a write did not pay', async (t) => {
  const delay = createCommitDelay();
  const delayed = delay.begin(1, 0);
  delay.arrived();
  await delayed;
  t.equal(delay.begin(1, 0), undefined);
});

t.test('a batch after which nothing was stored does not wait', (t) => {
  t.equal(createCommitDelay().begin(0, SLOW_MS), undefined);
  t.end();
});

t.test('what does not pay is tried less and less often, and what pays always', async (t) => {
  const delay = createCommitDelay();
  const pauses: number[] = [];
  while (pauses.at(-2) !== MAX_PAUSE) pauses.push(await pauseBeforeFailure(delay));
  t.strictSame(pauses, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 256]);

  for (let left = MAX_PAUSE; left > 0; left--) void delay.begin(1, SLOW_MS);
  for (let again = 0; again < 9; again++) {
    const delayed = delay.begin(1, SLOW_MS);
    delay.arrived();
    t.ok(await resolvesAtOnce(delayed));
  }
  t.equal(await pauseBeforeFailure(delay), 0);
  t.equal(await pauseBeforeFailure(delay), 1, 'what has paid nine times is soon tried again');
});
