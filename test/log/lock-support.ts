import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';

import type { Test } from 'tap';

import { openPlantLog } from '../../dist/log/log.js';
import { nodeSystem, type System } from '../../dist/log/system.js';

/** A process that runs holder.js, and has opened its log. */
export interface Holder {
  /** Suspends the process, and all processes that it started. */
  stop(): void;
  /** Kills the process and all processes that it started, and waits until they have ended. */
  kill(): Promise<void>;
}

/**
 * Starts a process that holds the lock. The wrapper is a command that runs another command, such as
 * `unshare -n`.
 */
export async function startHolder(t: Test, path: string, ...wrapper: string[]): Promise<Holder> {
  const holder = [process.execPath, join(import.meta.dirname, 'holder.js'), path];
  const child = spawn('env', [...wrapper, ...holder], {
    stdio: ['pipe', 'pipe', 'inherit'],
    detached: true,
  });
  const signal = (name: NodeJS.Signals) => process.kill(-(child.pid ?? 0), name);
  // Emitted when the last of these processes has closed stdout.
  const closed = once(child, 'close');
  t.teardown(async () => {
    if (child.exitCode === null && child.signalCode === null) signal('SIGCONT');
    child.stdin.end();
    await closed;
  });
  const opened = once(child.stdout.setEncoding('utf8'), 'data');
  t.strictSame(await Promise.race([opened, closed]), ['open\n']);
  return {
    stop: () => void signal('SIGSTOP'),
    async kill() {
      signal('SIGKILL');
      await closed;
    },
  };
}

/** The real system, but a lock is tried only once. */
export function hasty(): System {
  let expire = (): void => undefined;
  return {
    ...nodeSystem,
    startTimer(onExpiry) {
      expire = onExpiry;
      return { refresh: () => undefined };
    },
    sleep: async () => expire(),
  };
}

/** The claims to locks in a folder. */
export function claimsIn(folder: string): string[] {
  return readdirSync(folder).filter((name) => name.startsWith('.plants-'));
}

/** The number of plants in a log that is not open. */
export async function sizeOf(path: string): Promise<number> {
  const log = await openPlantLog(path);
  await log.close();
  return log.size;
}
