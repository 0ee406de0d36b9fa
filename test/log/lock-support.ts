import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

import type { Test } from 'tap';

import { openPlantLog } from '../../dist/log/log.js';
import { byLength } from '../length.js';

/** The number of rounds: more of them find rarer races. */
export const ROUNDS = byLength(3, 50, 500);
/** The number of processes that want a lock at once. */
export const PROCESSES = byLength(4, 8, 8);

export const LOCKED = { name: 'PlantStoreError', code: 'locked' };

/** A process that runs holder.js. */
export interface Holder {
  readonly pid: number;
  /** Sends a command and resolves to its result; to `undefined` if the process ends first. */
  tell(
    command: 'open' | 'close' | 'load' | 'unload' | 'disconnect' | 'pid',
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

export function logAt(t: Test): string {
  return join(t.testdir(), 'plants.jsonl');
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
