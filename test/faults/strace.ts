import { strict as assert } from 'node:assert';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

import { isLong } from '../length.js';

/** All file operations in one thread: strace counts the calls of each thread. */
export const ONE_THREAD = { UV_THREADPOOL_SIZE: '1', UV_USE_IO_URING: '0' };

/** A tracer that is not the parent of the program, which keeps its process id. */
const STRACE = [
  ...['strace', '-D', '-f', '-qq'],
  ...Object.entries(ONE_THREAD).flatMap(([name, value]) => ['-E', `${name}=${value}`]),
];

/** A selection of system calls. */
export interface Calls {
  /** Only calls that use these files. */
  readonly paths?: readonly string[];
  /** Their names, or one of strace's own sets. */
  readonly names: string;
}

function only({ paths = [], names }: Calls): string[] {
  return [...paths.flatMap((path) => ['-P', path]), '-e', `trace=${names}`];
}

/** Options that inject faults into calls, in the syntax of strace's `inject`. */
export function injections(calls: Calls, ...faults: readonly string[]): string[] {
  return [
    ...only(calls),
    '-o',
    '/dev/null',
    ...faults.flatMap((fault) => ['-e', `inject=${fault}`]),
  ];
}

/** A command that runs a program and injects faults into its calls. */
export function injecting(calls: Calls, ...faults: readonly string[]): string[] {
  return [...STRACE, ...injections(calls, ...faults)];
}

/** A command that runs a program and records its calls in a file. */
export function recording(calls: Calls, file: string): string[] {
  return [...STRACE, ...only(calls), '-o', file];
}

/** One call of a program: the `nth` one with this name in a thread. */
export interface Call {
  readonly name: string;
  readonly nth: number;
}

/**
 * Calls that change the disk or its visible state. A kill before any other call has the
 * same effect as a kill before the next one of these.
 */
const CHANGING =
  /^(?:mkdir|openat|p?write|p?writev|pwrite64|ftruncate|fsync|fdatasync|fchown|f?chmod|rename|unlink|bind|listen|futex)/;

/**
 * The calls in a record: for each name, the largest number that any one thread made. Unless
 * TEST_LENGTH is long, calls that change nothing are omitted.
 */
export function callsIn(record: string): Call[] {
  const counts = new Map<string, Map<string, number>>();
  for (const line of readFileSync(record, 'utf8').split('\n')) {
    const [, thread = '', name = ''] = /^(\d+) +(\w+)\(/.exec(line) ?? [];
    if (name === '' || (!isLong && !CHANGING.test(name))) continue;
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

/** Traces a process that is already running. */
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
  /** Stops tracing; the record is complete then. */
  detach(): Promise<void>;
}
