import { readFileSync, writeFileSync } from 'node:fs';

const KIB_PER_MIB = 1024;

/** The memory of a process, in MiB. */
export interface Memory {
  /** How much it holds now. */
  now(): number;
  /** The most that it has held since this was made. */
  most(): number;
}

export function memoryOf(pid: number): Memory {
  const status = (name: string): number =>
    Number(
      new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(
        readFileSync(`/proc/${pid}/status`, 'utf8'),
      )?.[1],
    ) / KIB_PER_MIB;
  // Makes VmHWM what VmRSS is.
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
  return { now: () => status('VmRSS'), most: () => status('VmHWM') };
}
