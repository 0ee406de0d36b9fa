import { spawnSync } from 'node:child_process';

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

/** Why tests with promtool cannot run on this machine, or false. */
export const noPromtool = missing('promtool');
