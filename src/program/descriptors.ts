import { readdirSync, readFileSync } from 'node:fs';

/**
 * How many file descriptors the process has open, and how many it may have; `undefined` if that cannot be
 * read. Not asynchronous: the threads of the pool may all wait for a file system that hangs.
 */
export function countDescriptors(
  folder = '/proc/self',
): { readonly open: number; readonly max: number } | undefined {
  try {
    const limits = readFileSync(`${folder}/limits`, 'utf8');
    const match = /^Max open files +(\d+)/m.exec(limits);
    if (!match) return undefined;
    // Without the one with which the folder is read.
    return { open: readdirSync(`${folder}/fd`).length - 1, max: Number(match[1]) };
  } catch {
    return undefined;
  }
}

/** The largest numbers of connections at a time. */
export interface ConnectionLimits {
  readonly service: number;
  readonly monitor: number;
}

/**
 * The descriptors that the program needs besides connections: for the log, its lock, two listening
 * sockets, files that it opens for a moment, and connections that it closes at once.
 */
const OWN_DESCRIPTORS = 16;

/**
 * Lowers the limits of connections to what the free descriptors allow, after those for the database are
 * subtracted. If too few are left, the monitor gets at most a quarter of them, so that it can be reached when
 * the service cannot.
 *
 * @throws Error if none is left for a connection to the service.
 */
export function fitConnections(
  wanted: ConnectionLimits,
  ofDatabase: number,
  descriptors: ReturnType<typeof countDescriptors>,
): ConnectionLimits {
  if (!descriptors) return wanted;
  const { open, max } = descriptors;
  const free = max - open - OWN_DESCRIPTORS - ofDatabase;
  if (wanted.service + wanted.monitor <= free) return wanted;
  const monitor = Math.min(wanted.monitor, Math.floor(free / 4));
  if (free - monitor < 1) throw new Error(`too few open files are allowed: ${max} (ulimit -n)`);
  return { service: Math.min(wanted.service, free - monitor), monitor };
}
