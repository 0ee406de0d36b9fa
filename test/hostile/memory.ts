import { readFileSync, writeFileSync } from 'node:fs';

const KIB_PER_MIB = 1024;

/**
 * Memory in MiB that does not grow with `PLANT_STORE_MAX_BUFFERED`: Node itself, 10,000 connections,
 * the heads of refused requests, and garbage that is not collected yet.
 */
export const FIXED_MIB = 512;
/** Memory in KiB that OpenSSL and the C library hold for each TLS connection. */
export const TLS_KIB = 128;

/** The resident memory of a process, in MiB. */
export interface Memory {
  now(): number;
  /** The peak since `memoryOf` was called. */
  most(): number;
}

export function memoryOf(pid: number): Memory {
  const status = (name: string): number =>
    Number(
      new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(
        readFileSync(`/proc/${pid}/status`, 'utf8'),
      )?.[1],
    ) / KIB_PER_MIB;
  // Resets the peak, VmHWM, to VmRSS.
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
  return { now: () => status('VmRSS'), most: () => status('VmHWM') };
}
