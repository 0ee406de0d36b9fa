import { readFileSync, writeFileSync } from 'node:fs';

/**
 * Memory in MiB that does not grow with `PLANT_STORE_MAX_BUFFERED`: Node itself, 10,000
 * connections, the heads of refused requests, and garbage that is not collected yet.
 */
export const FIXED_MIB = 512;
/** Memory in KiB that OpenSSL and the C library hold for each TLS connection. */
export const TLS_KIB = 128;
/** Memory in bytes that each byte of `PLANT_STORE_MAX_BODY` above its default takes. */
export const PER_BODY_BYTE = 60;

/**
 * Returns a function that returns the peak of a process's resident memory since this call, in MiB.
 */
export function watchMemory(pid: number): () => number {
  // Resets the peak, VmHWM, to the present size.
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
  return () => {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return Math.round(Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024);
  };
}
