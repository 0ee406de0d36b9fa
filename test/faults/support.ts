import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import type { Test } from 'tap';

import { TOKEN } from '../client.js';
import type { Program } from '../system/program.js';

/** Commands that succeed if a need is met, for needs that are not commands themselves. */
const PROBES: Readonly<Record<string, readonly string[]>> = {
  'the right to mount': ['unshare', '--mount', 'true'],
  'loop devices': ['test', '-e', '/dev/loop-control'],
  strace: ['strace', '-o', '/dev/null', 'true'],
};

/** The reason to skip a test that needs these commands and rights; `false` if there is none. */
export function missing(...needs: readonly string[]): string | false {
  const absent = needs.filter((need) => {
    const [file = '', ...args] = PROBES[need] ?? ['sh', '-c', 'command -v "$0"', need];
    return spawnSync(file, args).status !== 0;
  });
  return absent.length > 0 && `needs ${absent.join(', ')}`;
}

/** The settings of a program that keeps its log at this path. */
export function settingsFor(log: string): Record<string, string> {
  return { PLANT_STORE_FILE: log, PLANT_STORE_TOKEN: TOKEN };
}

export async function stopCleanly(t: Test, program: Program): Promise<void> {
  t.match(await program.stop('SIGTERM'), { code: 0 }, 'a clean shutdown');
}

/** Mounts a file system on a new folder until the test ends. */
export function mount(t: Test, ...args: readonly string[]): string {
  // Not in `t.testdir()`, which tap removes before it calls teardown functions.
  const folder = mkdtempSync(join(tmpdir(), 'plant-store-'));
  t.teardown(() => rmdirSync(folder));
  execFileSync('mount', [...args, folder]);
  t.teardown(() => execFileSync('umount', [folder]));
  return folder;
}
