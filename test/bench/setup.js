/** Preparations that the benchmarks share. */

import { spawnSync } from 'node:child_process';
import {
  closeSync,
  existsSync,
  fdatasyncSync,
  mkdtempSync,
  openSync,
  rmSync,
  statfsSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';

const TMPFS = 0x01021994; // TMPFS_MAGIC, statfs(2)

/** The value of an option that must be a positive integer. */
export function count(name, text) {
  if (/^[1-9]\d*$/.test(text)) return Number(text);
  throw new Error(`--${name}: ${text} is not a positive integer`);
}

/** A file system in memory says nothing about durable writes. */
export function refuseMemory(folder) {
  if (statfsSync(folder).type !== TMPFS) return;
  throw new Error(`${folder} is in memory (tmpfs): choose a folder on a disk with --folder`);
}

/** The file system of a folder, and the times of a durable write in it, one by one, in ms. */
export function measureDisk(folder) {
  const { stdout } = spawnSync('df', ['--output=fstype', folder], { encoding: 'utf8' });
  const [, fileSystem] = stdout.trim().split('\n');
  const file = openSync(join(temporaryFolder(folder), 'writes'), 'ax');
  const times = Array.from({ length: 200 }, () => {
    const started = performance.now();
    writeSync(file, `${'x'.repeat(99)}\n`);
    fdatasyncSync(file);
    return performance.now() - started;
  });
  closeSync(file);
  return { fileSystem, times };
}

/** Files that wrk and the servers open in addition to their connections. */
const OTHER_FILES = 100;

/**
 * Node raises its soft limit to the hard one at startup, and its child processes inherit the limit.
 */
export function requireOpenFiles(connections) {
  const { stdout } = spawnSync('sh', ['-c', 'ulimit -n'], { encoding: 'utf8' });
  // "unlimited" is not a number, and never less.
  if (!(Number(stdout) < connections + OTHER_FILES)) return;
  const limit = stdout.trim();
  throw new Error(
    `${connections} connections need a higher limit of open files (ulimit -n: ${limit})`,
  );
}

export function installPackages() {
  const cwd = import.meta.dirname;
  if (existsSync(join(cwd, 'node_modules'))) return;
  console.error(`installing the packages of ${cwd}: npm ci`);
  const { status } = spawnSync('npm', ['ci'], { cwd, stdio: ['ignore', 2, 2] });
  if (status !== 0) throw new Error('npm ci failed');
}

/**
 * A folder that is removed when this process exits, unless by SIGKILL, after its servers have been
 * killed.
 */
export function temporaryFolder(parent) {
  const folder = mkdtempSync(join(parent, 'plant-store-bench-'));
  process.once('exit', () => rmSync(folder, { recursive: true, maxRetries: 5 }));
  for (const signal of ['SIGHUP', 'SIGINT', 'SIGTERM']) {
    process.once(signal, () => process.exit(1));
  }
  return folder;
}
