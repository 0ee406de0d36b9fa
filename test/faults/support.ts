import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import type { Test } from 'tap';

/** Mounts a file system on a new folder until the test ends. */
export function mount(t: Test, ...args: readonly string[]): string {
  // Not in `t.testdir()`, which tap removes before it calls teardown functions.
  const folder = mkdtempSync(join(tmpdir(), 'plant-store-'));
  t.teardown(() => rmdirSync(folder));
  execFileSync('mount', [...args, folder]);
  t.teardown(() => execFileSync('umount', [folder]));
  return folder;
}
