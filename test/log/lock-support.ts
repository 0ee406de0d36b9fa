import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

import type { Test } from 'tap';

import { nodeSystem, type System } from '../../dist/log/files.js';
import { openPlantLog } from '../../dist/log/log.js';
import { byLength } from '../length.js';

/** The number of rounds: more of them find rarer races. */
export const ROUNDS = byLength(3, 50, 100);
/** The number of processes that want a lock at once. */
export const PROCESSES = byLength(4, 8, 24);

/** A process that runs holder.js. */
export interface Holder {
  readonly pid: number;
  /** Sends a command and resolves to its result; to `undefined` if the process ends first. */
  tell(
    command: 'open' | 'contend' | 'close' | 'load' | 'unload' | 'disconnect' | 'pid',
  ): Promise<string | undefined>;
  nextLine(): Promise<string | undefined>;
  signal(signal: NodeJS.Signals): void;
  /** Resolves when the process has ended, even if one that it started has not. */
  readonly exited: Promise<unknown>;
  /** Sends a signal and waits until the process and all those that it started have ended. */
  end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void>;
}

/** Starts a holder. The wrapper is a command that runs another command, such as `unshare -n`. */
export async function startHolder(t: Test, path: string, ...wrapper: string[]): Promise<Holder> {
  // Its coverage would cost more than all the rest.
  const plain = ['-u', 'NODE_V8_COVERAGE'];
  const holder = [process.execPath, join(import.meta.dirname, 'holder.js'), path];
  const child = spawn('env', [...plain, ...wrapper, ...holder], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  // Emitted when the last of these processes has closed stdout.
  const closed = once(child, 'close');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const nextLine = async (): Promise<string | undefined> => {
    const line: IteratorResult<string, undefined> = await lines.next();
    return line.value;
  };
  child.stdin.on('error', () => undefined);
  t.teardown(async () => {
    child.kill('SIGCONT');
    child.stdin.end();
    await closed;
  });
  t.equal(await nextLine(), 'ready');
  return {
    pid: child.pid ?? 0,
    tell(command) {
      child.stdin.write(`${command}\n`);
      return nextLine();
    },
    nextLine,
    exited,
    signal: (signal) => void child.kill(signal),
    async end(signal) {
      child.kill(signal);
      await closed;
    },
  };
}

/** Starts holders that run side by side. */
export function startHolders(t: Test, path: string, count: number): Promise<Holder[]> {
  return Promise.all(Array.from({ length: count }, () => startHolder(t, path)));
}

/** The real system, on which time passes ten times as fast: a lock is tried for 0.3 s. */
export const hurried: System = {
  ...nodeSystem,
  startTimer: (onExpiry, ms) => nodeSystem.startTimer(onExpiry, ms / 10),
  sleep: (ms) => nodeSystem.sleep(ms / 10),
};

/**
 * Lets holders open a log at once, none of which gives up before it knows that another one has it open.
 * Resolves to the only one that succeeded.
 */
export async function contest(t: Test, holders: readonly Holder[]): Promise<Holder | undefined> {
  const answers = await Promise.all(holders.map((holder) => holder.tell('contend')));
  const refused = Array<string>(holders.length - 1).fill('locked');
  t.strictSame(answers.toSorted(), [...refused, 'open']);
  return holders[answers.indexOf('open')];
}

/** The claims to locks in a folder. */
export function claimsIn(folder: string): string[] {
  return readdirSync(folder).filter((name) => name.startsWith('.plant-store-'));
}

/** The number of plants in a log that is not open. */
export async function sizeOf(path: string): Promise<number> {
  const log = await openPlantLog(path);
  await log.close();
  return log.size;
}
