import { AsyncResource } from 'node:async_hooks';
import { createHash } from 'node:crypto';
import { constants, readdirSync, readFileSync } from 'node:fs';
import { constants as systemConstants } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { crc32 } from 'node:zlib';

import type { Test } from 'tap';

import type { OpenFile } from '../../dist/log/files.js';
import { openLog, type PlantLog } from '../../dist/log/log.js';
import { encodeRecord } from '../../dist/log/encode.js';
import { nodeSystem, type System } from '../../dist/log/system.js';
import type { NewPlant } from '../../dist/plant.js';

export const UNAVAILABLE = { name: 'PlantStoreError', code: 'unavailable' };
export const LOCKED = { name: 'PlantStoreError', code: 'locked' };

/**
 * The path of a log in a new folder. Without `content`, the file is missing. A string is written in
 * Latin-1.
 */
export function logAt(t: Test, content?: string | Buffer): string {
  const bytes = typeof content === 'string' ? Buffer.from(content, 'latin1') : content;
  return join(t.testdir(bytes === undefined ? {} : { 'plants.jsonl': bytes }), 'plants.jsonl');
}

/** The record of a plant in Latin-1, so that an index is a byte offset. */
export function lineOf(plant: NewPlant): string {
  return Buffer.from(encodeRecord(plant)).toString('latin1');
}

/** A line with the right checksum. */
export function signed(members: string, encoding: BufferEncoding = 'utf8'): string {
  return `${members},"crc32":${crc32(Buffer.from(members, encoding))}}\n`;
}

/** The content of every file in a folder. Throws if a lock is left there. */
export function contentOf(folder: string, names = readdirSync(folder)): Record<string, string> {
  return Object.fromEntries(
    names.map((name) => [name, readFileSync(join(folder, name), 'latin1')]),
  );
}

/** The content of every file in a folder, except the sockets that are locks. */
export function filesIn(folder: string): Record<string, string> {
  const names = readdirSync(folder).filter((name) => !name.startsWith('.plants-'));
  return contentOf(folder, names);
}

/** The name of the file that keeps what was moved aside from `plants.jsonl`. */
export function nameOfKept(kind: 'torn' | 'damaged', content: string): string {
  const hash = createHash('sha256').update(content, 'latin1').digest('hex');
  return `plants.jsonl.${kind}-${hash.slice(0, 16)}`;
}

/** An open log on a file system with faults. */
export interface OpenedLog {
  readonly fs: FaultyFileSystem;
  readonly path: string;
  readonly log: PlantLog;
  readonly reports: string[];
  readonly content: () => string;
}

/** Opens a log on a file system with faults. The log is closed when the test ends. */
export async function openWithFaults(
  t: Test,
  faults: Faults = {},
  { content, dsyncIsDurable = true }: { content?: Buffer; dsyncIsDurable?: boolean } = {},
): Promise<OpenedLog> {
  const path = logAt(t, content);
  const fs = faultyFileSystem(faults, { dsyncIsDurable });
  const reports: string[] = [];
  const log = await openLog(fs, path, { report: (message) => reports.push(message) });
  t.teardown(() => log.close());
  return { fs, path, log, reports, content: () => readFileSync(path, 'utf8') };
}

/** The number of operations of a kind so far. */
export function countOf({ operations }: FaultyFileSystem, kind: string): number {
  return operations.filter((each) => each === kind).length;
}

/** Gives the next operation of a kind a fault. */
export function failNext(fs: FaultyFileSystem, kind: string, fault: Fault): void {
  fs.faults[`${kind} ${countOf(fs, kind) + 1}`] = fault;
}

/** Lets the next operation of a kind wait at a gate. */
export function holdNext(fs: FaultyFileSystem, kind: string, fault: Fault = {}): Gate {
  const gate = createGate();
  failNext(fs, kind, { ...fault, hangs: gate });
  return gate;
}

export const HANGING = { ...UNAVAILABLE, message: /has not returned for 10 s$/ };

/**
 * Adds plants, and lets the next operation of a kind hang for so long that the plants are refused.
 * Resolves to the gate at which the operation waits.
 */
export async function hangNext(
  t: Test,
  { fs, log }: Pick<OpenedLog, 'fs' | 'log'>,
  kind: string,
  plants: readonly NewPlant[],
  fault?: Fault,
): Promise<Gate> {
  const gate = holdNext(fs, kind, fault);
  const refused = plants.map((plant) => t.rejects(log.add(plant), HANGING));
  await gate.reached;
  await fs.expire();
  // No timer keeps the process running: if the test waited here, the process would end without the
  // title of the test.
  if (await isPending(Promise.all(refused))) throw new Error('plants still wait after 10 s');
  return gate;
}

export function ignore(): void {
  // Reports and progress that a test does not look at.
}

/** What goes wrong in an operation. */
export interface Fault {
  /** How many bytes are written first. Default: none if the write fails, otherwise all. */
  readonly writes?: number;
  /** The code of the error with which the operation fails. */
  readonly fails?: string;
  /** What the operation waits for before it begins. */
  readonly hangs?: Gate;
}

/**
 * Faults, by the number of the operation among all operations, or by its kind and its number among
 * the operations of this kind.
 */
export type Faults = Record<number | `${string} ${number}`, Fault>;

export interface FaultyFileSystem extends System {
  /** The kinds of all operations so far. */
  readonly operations: readonly string[];
  /** May be changed at any time. */
  readonly faults: Faults;
  /** How many files are open. */
  readonly openFiles: number;
  /**
   * Lets 10 s pass, or `ms` milliseconds. An operation that is still in progress then counts as
   * hanging.
   */
  expire(ms?: number): Promise<void>;
}

type Operation = (...args: unknown[]) => unknown;

/** The real file system, on which chosen operations fail, write less than they should, or hang. */
export function faultyFileSystem(
  faults: Faults = {},
  { dsyncIsDurable = true } = {},
): FaultyFileSystem {
  const operations: string[] = [];
  /** The timers that have not expired, with their times. */
  const running = new Map<() => void, number>();
  let now = 0;
  let openFiles = 0;

  function perform(kind: string, operation: Operation, args: unknown[]): unknown {
    operations.push(kind);
    const nth = operations.filter((each) => each === kind).length;
    const fault = faults[operations.length] ?? faults[`${kind} ${nth}`] ?? {};
    if (kind !== 'statSync') return performFaulty(fault, kind, operation, args);
    if (fault.fails !== undefined) throw systemError(fault.fails, kind);
    return operation(...args);
  }

  async function performFaulty(
    { writes, fails, hangs }: Fault,
    kind: string,
    operation: Operation,
    args: unknown[],
  ): Promise<unknown> {
    await hangs?.pass();
    if (kind === 'close') openFiles--;
    if (kind === 'write' && writes !== undefined) {
      const [descriptor, bytes] = args as [number, Buffer];
      const result = await operation(descriptor, bytes.subarray(0, writes));
      if (fails === undefined) return result;
    }
    // If close(2) fails, the descriptor is closed nevertheless.
    if (fails !== undefined && kind === 'close') await operation(...args);
    if (fails !== undefined) throw systemError(fails, kind);
    const result = await operation(...args);
    if (kind === 'open') openFiles++;
    return result;
  }

  const { sleep, randomBytes } = nodeSystem;
  return {
    ...intercept({ ...withoutDisk, dsyncIsDurable }, perform),
    sleep,
    startTimer(onExpiry, ms) {
      // Like Node's timers, this one expires in the asynchronous context in which it was started.
      const expire = AsyncResource.bind(onExpiry);
      const refresh = (): unknown => running.set(expire, now + ms);
      refresh();
      return { refresh };
    },
    randomBytes,
    operations,
    faults,
    get openFiles() {
      return openFiles;
    },
    async expire(time = 10_000) {
      now += time;
      for (const [onExpiry, at] of running)
        if (at <= now) {
          running.delete(onExpiry);
          onExpiry();
        }
      await nextTurn();
    },
  };
}

/**
 * The real system, but it does not wait for the disk: no test depends on the disk, and thousands of
 * logs open faster.
 */
const withoutDisk: System = {
  ...nodeSystem,
  open: (path, flags, mode) => nodeSystem.open(path, flags & ~constants.O_DSYNC, mode),
  fsync: async () => undefined,
};

/** Lets `perform` handle every call of a method of an object. */
function intercept<T extends object>(
  target: T,
  perform: (kind: string, operation: Operation, args: unknown[]) => unknown,
): T {
  return new Proxy(target, {
    get(_, name) {
      const member: unknown = Reflect.get(target, name);
      if (typeof member !== 'function') return member;
      const operation = member.bind(target) as Operation;
      return (...args: unknown[]) => perform(String(name), operation, args);
    },
  });
}

/** An error of the system, as Node reports it. */
export function systemError(code: string, syscall: string): NodeJS.ErrnoException {
  const errno = (systemConstants.errno as Record<string, number | undefined>)[code];
  const error = new Error(`${code}: a fault of the test, ${syscall}`);
  return Object.assign(error, { code, syscall }, errno === undefined ? {} : { errno: -errno });
}

/** A gate at which operations wait until it is opened. */
export interface Gate {
  /** Resolves once an operation has reached the gate. */
  readonly reached: Promise<void>;
  pass(): Promise<void>;
  open(): void;
}

export function createGate(): Gate {
  let reach: () => void = () => undefined;
  let open: () => void = () => undefined;
  const reached = new Promise<void>((resolve) => (reach = resolve));
  const opened = new Promise<void>((resolve) => (open = resolve));
  return {
    reached,
    pass() {
      reach();
      return opened;
    },
    open,
  };
}

/** A file in memory, of which a read returns a limited number of bytes. */
export function memoryFile(content: Buffer, maxBytesRead = Infinity): OpenFile {
  const read = async (buffer: Buffer, position: number) =>
    content.copy(buffer, 0, position, position + Math.min(buffer.length, maxBytesRead));
  const stat = async () => ({ size: BigInt(content.length), isFile: () => true });
  return { read, stat } as unknown as OpenFile;
}

/** A log that holds these plants. */
export function logOf(plants: readonly NewPlant[]): Buffer {
  return Buffer.from(plants.map(encodeRecord).join(''));
}

/** Resolves once a log takes plants. */
export async function untilAvailable(log: PlantLog): Promise<void> {
  const isAvailable = (): Promise<boolean> =>
    log.check().then(
      () => true,
      () => false,
    );
  while (!(await isAvailable())) await nextTurn();
}

/** Resolves to true if a promise is still pending after all that was ready has run. */
export async function isPending(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  const settle = (): void => void (settled = true);
  promise.then(settle, settle);
  await nextTurn();
  return !settled;
}
