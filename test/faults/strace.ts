import { strict as assert } from 'node:assert';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

import type { Extent } from './case.js';

/** Which system calls of a program are meant. */
export interface Calls {
  /** Those that have to do with these files; all where there are none. */
  readonly paths?: readonly string[];
  /** Their names, or a set of strace's own. */
  readonly names: string;
}

function only({ paths = [], names }: Calls): string[] {
  return [...paths.flatMap((path) => ['-P', path]), '-e', `trace=${names}`];
}

/** The options with which calls fail or kill, as strace's `inject` has it. */
export function injections(calls: Calls, ...faults: readonly string[]): string[] {
  return [
    ...only(calls),
    '-o',
    '/dev/null',
    ...faults.flatMap((fault) => ['-e', `inject=${fault}`]),
  ];
}

/** The command under which calls of a program fail or kill it. */
export function injecting(calls: Calls, ...faults: readonly string[]): string[] {
  return ['strace', '-D', '-f', '-qq', ...injections(calls, ...faults)];
}

/** The command under which calls of a program are written to a file. */
export function recording(calls: Calls, file: string): string[] {
  return ['strace', '-D', '-f', '-qq', ...only(calls), '-o', file];
}

/** One call of a program: the `nth` of its name in a thread. */
export interface Call {
  readonly name: string;
  readonly nth: number;
}

/**
 * Calls that change what is on the disk, or what others know of it. To be killed before any other
 * is to be killed before the next of these.
 */
const CHANGING =
  /^(?:mkdir|openat|p?write|p?writev|pwrite64|ftruncate|fsync|fdatasync|fchown|f?chmod|rename|unlink|bind|listen|futex)/;

/** All calls in a record, each name so often as the thread made it that made it most often. */
export function callsIn(record: string, { everyCall }: Extent): Call[] {
  const counts = new Map<string, Map<string, number>>();
  for (const line of readFileSync(record, 'utf8').split('\n')) {
    const [, thread = '', name = ''] = /^(\d+) +(\w+)\(/.exec(line) ?? [];
    if (name === '' || !(everyCall || CHANGING.test(name))) continue;
    const threads = counts.get(name) ?? new Map<string, number>();
    counts.set(name, threads.set(thread, (threads.get(thread) ?? 0) + 1));
  }
  return [...counts].flatMap(([name, threads]) =>
    Array.from({ length: Math.max(...threads.values()) }, (_, i) => ({ name, nth: i + 1 })),
  );
}

export function killingAt({ name, nth }: Call): string {
  return `${name}:signal=KILL:when=${nth}`;
}

/** Traces a program that runs already, from now on. */
export async function attach(pid: number, options: readonly string[]): Promise<Tracer> {
  const child = spawn('strace', ['-f', '-p', String(pid), ...options], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const ended = once(child, 'close').then(() => undefined);
  const [line] = (await once(createInterface(child.stderr), 'line')) as [string];
  assert.match(line, /attached/);
  return {
    async detach() {
      child.kill('SIGINT');
      await ended;
    },
  };
}

export interface Tracer {
  /** Lets go of the program; what was recorded is complete then. */
  detach(): Promise<void>;
}
