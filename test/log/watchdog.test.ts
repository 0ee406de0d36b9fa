import { setImmediate as nextTurn } from 'node:timers/promises';

import t from 'tap';

import { nodeSystem, type System } from '../../dist/log/system.js';
import { createWatchdog, HANG_MS } from '../../dist/log/watchdog.js';
import type { PlantStoreError } from '../../dist/store.js';
import { createGate, faultyFileSystem } from './support.js';

interface Watched {
  /** Runs an operation under the watchdog. */
  readonly watch: (operation: () => Promise<unknown>) => Promise<void>;
  readonly errors: PlantStoreError[];
  /** Resolves when the next operation hangs. */
  readonly nextHang: () => Promise<void>;
}

function watchOn(system: System): Watched {
  const errors: PlantStoreError[] = [];
  let resolve = (): void => undefined;
  const watchdog = createWatchdog(
    { system, path: 'plants.jsonl', operation: 'a write' },
    (error) => {
      errors.push(error);
      resolve();
    },
  );
  async function watch(operation: () => Promise<unknown>): Promise<void> {
    watchdog.start();
    await operation();
    watchdog.stop();
  }
  return { watch, errors, nextHang: () => new Promise((hangs) => (resolve = hangs)) };
}

t.test('each operation has its own time', async (t) => {
  const periods: number[] = [];
  const hastened: System = {
    ...nodeSystem,
    startTimer(onExpiry, ms) {
      periods.push(ms);
      return nodeSystem.startTimer(onExpiry, 1);
    },
  };
  const { watch, errors, nextHang } = watchOn(hastened);
  // The timer does not keep the process alive.
  const keepAlive = setInterval(() => undefined, 1_000);
  for (let hung = 1; hung <= 3; hung++) {
    const gate = createGate();
    const hangs = nextHang();
    const operation = watch(() => gate.pass());
    await hangs;
    t.equal(errors.length, hung);
    gate.open();
    await operation;
  }
  clearInterval(keepAlive);
  t.strictSame(periods, [HANG_MS]);
  t.match(errors[0], { code: 'unavailable', message: /^plants.jsonl: a write has not returned/ });
});

t.test('an operation that has returned in time does not hang', async (t) => {
  const fs = faultyFileSystem();
  const { watch, errors } = watchOn(fs);
  await fs.expire();
  await watch(async () => undefined);
  await fs.expire();
  const late = watch(() => nextTurn());
  // The event loop was blocked: the timer expires before the result is read, which has arrived.
  await fs.expire();
  await late;
  t.strictSame(errors, []);
});

t.test('the time of an operation does not count for the next one', async (t) => {
  const fs = faultyFileSystem();
  const { watch, errors } = watchOn(fs);
  const gate = createGate();
  const first = watch(() => nextTurn());
  const next = first.then(() => watch(() => gate.pass()));
  await fs.expire();
  await gate.reached;
  t.strictSame(errors, []);
  gate.open();
  await next;
});

t.test('the timer does not keep the process alive', async (t) => {
  const timer = nodeSystem.startTimer(() => undefined, HANG_MS);
  t.notOk((timer as NodeJS.Timeout).hasRef());
});
