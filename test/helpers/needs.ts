import { spawnSync } from 'node:child_process';

/** For each need that is not a command itself, a command that succeeds if the need is met. */
const PROBES: Readonly<Record<string, readonly string[]>> = {
  'the right to mount': ['unshare', '--mount', 'true'],
  'loop devices': ['test', '-e', '/dev/loop-control'],
  duckdb: ['python3', '-c', 'import duckdb'],
  pandas: ['python3', '-c', 'import pandas'],
  strace: ['strace', '-o', '/dev/null', 'true'],
};

/** Why a test that needs these commands and rights is skipped, or `false` if none is missing. */
export function missing(...needs: readonly string[]): string | false {
  const absent = needs.filter((need) => {
    const [file = '', ...args] = PROBES[need] ?? ['sh', '-c', 'command -v "$0"', need];
    return spawnSync(file, args).status !== 0;
  });
  return absent.length > 0 && `needs ${absent.join(', ')}`;
}

/** Why tests with promtool are skipped on this machine, or `false`. */
export const noPromtool = missing('promtool');
