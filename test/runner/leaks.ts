import { readdirSync, readlinkSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import timers from 'node:timers';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

import type { Test } from 'tap';

/**
 * How long a test may take to release its resources, in milliseconds. This is less than the timers
 * of a connection, which would otherwise expire unnoticed.
 */
const RELEASE_MS = 3_000;
const POLL_MS = 5;

/** The path of the code under test, as the stack of a timer shows it. */
const SOURCE = new URL('../../dist/', import.meta.url).pathname.replace(/dist\/$/, 'src/');

/** All timers that are running, each with the stack of the call that started it. */
const running = new Map<unknown, Error>();

/**
 * Fails each top-level test that leaves behind a timer of `src/`, an open file, a listener on
 * `process`, or another resource that keeps the process running. Resources that its file held
 * before the test do not count.
 */
export function failOnLeaks(root: Test): void {
  recordTimers();
  root.beforeEach((test) => {
    // The resources of tests that run at the same time could not be told apart.
    if (test.parent !== root || root.jobs > 1) return;
    const before = held();
    // The teardown that is added first runs last.
    test.teardown(async () => {
      const deadline = performance.now() + RELEASE_MS;
      let left: readonly string[];
      while ((left = without(held(), before)).length > 0) {
        if (performance.now() > deadline) {
          const message = `${test.name}: what it leaves behind: ${[...new Set(left)].join(', ')}`;
          // The runner shows only the first error of a test, but everything that was printed.
          console.log(message);
          throw new Error(message);
        }
        await sleep(POLL_MS);
      }
    });
  });
}

/**
 * Replaces the functions of timers, to record which timers are running. Hooks of `node:async_hooks`
 * would show them, too, but keep requests from being garbage-collected.
 */
function recordTimers(): void {
  for (const name of ['setTimeout', 'setInterval'] as const) {
    const start = timers[name];
    const started = (
      onExpiry: (...args: unknown[]) => void,
      ...rest: [number?]
    ): NodeJS.Timeout => {
      const timer = start(
        (...args: unknown[]) => {
          if (name === 'setTimeout') running.delete(timer);
          onExpiry(...args);
        },
        ...rest,
      );
      running.set(timer, new Error());
      return timer;
    };
    replace(name, Object.assign(started, { [promisify.custom]: promisify(start) }));
  }
  for (const name of ['clearTimeout', 'clearInterval'] as const) {
    const clear = timers[name];
    replace(name, (timer?: NodeJS.Timeout) => {
      running.delete(timer);
      clear(timer);
    });
  }
  syncBuiltinESMExports();
}

function replace(
  name: 'setTimeout' | 'setInterval' | 'clearTimeout' | 'clearInterval',
  value: object,
): void {
  for (const owner of [globalThis, timers]) Object.assign(owner, { [name]: value });
}

function held(): string[] {
  return [...process.getActiveResourcesInfo(), ...startedTimers(), ...openFiles(), ...listeners()];
}

/** The places in `src/` at which the timers that run were started. */
function startedTimers(): string[] {
  return [...running.values()].flatMap(({ stack = '' }) => {
    const frames = stack.split('\n').filter((frame) => frame.includes(SOURCE));
    // The timers of the log do not keep the process running, and expire without effect.
    if (frames[0] === undefined || frames[0].includes('startTimer')) return [];
    return [`timer of ${frames[0].slice(frames[0].indexOf(SOURCE) + SOURCE.length - 4, -1)}`];
  });
}

/** The paths of the open files, which only Linux lists. */
function openFiles(): string[] {
  if (process.platform !== 'linux') return [];
  return readdirSync('/proc/self/fd').flatMap((descriptor) => {
    try {
      const path = readlinkSync(`/proc/self/fd/${descriptor}`);
      return path.startsWith('/') ? [path] : [];
    } catch {
      // The descriptor of the folder itself is closed by now.
      return [];
    }
  });
}

function listeners(): string[] {
  return process
    .eventNames()
    .flatMap((event) =>
      process.listeners(event as 'exit').map(() => `listener of ${String(event)}`),
    );
}

/** The items that are left after each of `others` is removed once. */
function without(items: readonly string[], others: readonly string[]): string[] {
  const rest = [...items];
  for (const other of others) {
    const index = rest.indexOf(other);
    if (index >= 0) rest.splice(index, 1);
  }
  return rest;
}
