import { PlantStoreError } from '../store.js';
import { reasonOf } from '../system-error.js';

/** Why a line is damaged. If it is not JSON, or the JSON is no plant, a `PlantFault` says why. */
export const damageReasons = {
  blank: 'it is blank',
  byteOrderMark: 'it begins with a byte order mark',
  noChecksum: 'it holds a plant, but has no crc32',
  wrongChecksum: 'crc32: does not match the plant',
  newerVersion: 'a newer version of plant-store has written it; use that version',
  crlf: 'it ends with CR LF, where a record ends with LF',
  otherLayout:
    'it holds a plant, but has other spaces, escapes or members than a record, or another order',
  repeatedId: (at: number): string => `it repeats the id of the line at byte ${at}`,
} as const;

/** The code of the errors that say that another process has changed the file of a log. */
export const MODIFIED = 'ERR_LOG_MODIFIED';

const modified = (message: string): Error => Object.assign(new Error(message), { code: MODIFIED });

/** Why the file of a log cannot be used. {@link toStoreError} adds its path. */
export const fileErrors = {
  changed: () =>
    modified(
      'the file was modified, replaced or removed by another process; if it was replaced or truncated, put it back',
    ),
  modifiedLine: (offset: number) => modified(`the line at byte ${offset} was modified`),
  lineTooLong: (offset: number) =>
    new RangeError(`the line at byte ${offset} is longer than any record`),
  noLog: () => new Error('it is not a log of plants; nothing was changed'),
  nothingToKeep: () =>
    new Error(
      'a repair would keep no plant, so nothing was changed; if no plant in this file was acknowledged, move the file away',
    ),
  truncated: () => new Error('the log was truncated while it was read'),
} as const;

const unavailable = (message: string, options?: ErrorOptions): PlantStoreError =>
  new PlantStoreError('unavailable', message, options);

/** The errors that the store throws. */
export const storeErrors = {
  tooLarge: () => new RangeError('the plant is too large'),
  conflict: () => new PlantStoreError('conflict', 'the id belongs to a different plant'),
  closed: (path: string) => unavailable(`${path}: the log is closed`),
  hanging: (path: string, ms: number) =>
    unavailable(`${path}: a write has not returned for ${ms / 1000} s`),
  damaged: (path: string, line: string, reason: string) =>
    new PlantStoreError('damaged', `${path}: ${line}: ${reason}`),
  ofNewerVersion: (path: string, line: string) =>
    unavailable(`${path}: ${line}: ${damageReasons.newerVersion}`),
  locked: (path: string) =>
    new PlantStoreError(
      'locked',
      `${path}: a process has the log open ("fuser ${path}" shows which one); one log serves one process, PostgreSQL serves several`,
    ),
  marked: (path: string, mark: string) =>
    unavailable(
      `${path}: the file was modified, replaced or removed while it was open; put it back if it was replaced, truncated or removed, check it with the command "verify", and then remove ${mark}`,
    ),
  longPath: (folder: string) =>
    unavailable(
      `${folder}: the path of this folder is too long for the Unix socket in it that locks the log, and there is no /proc/self/fd to shorten it`,
    ),
  noSocket: (folder: string, cause: unknown) =>
    unavailable(
      `${folder}: the Unix socket that locks the log cannot be created: ${reasonOf(cause)}; the folder must be writable, and its file system must have Unix sockets`,
      { cause },
    ),
} as const;

/**
 * Turns the error of a file operation, or of {@link fileErrors}, into the error that the store
 * throws.
 */
export function toStoreError(path: string, error: unknown): PlantStoreError {
  if (error instanceof PlantStoreError) return error;
  return unavailable(`${path}: ${reasonOf(error)}`, { cause: error });
}
