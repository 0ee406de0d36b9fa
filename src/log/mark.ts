import { dirname } from 'node:path';

import { codeOf, reasonOf } from '../system-error.js';
import { storeErrors, toStoreError } from './errors.js';
import * as files from './files.js';
import type { System } from './system.js';

/*
 * The mark of a log whose file another process has modified, replaced or removed while it was open:
 * a file beside it. Without it, a process that is restarted at once would continue a log that was
 * emptied, and give stored ids to other plants. So a marked log is not opened until somebody has
 * looked at it and removed the mark.
 *
 * A mark is left at each path by which a start may open the log: at its real path, and, if the
 * given path leads through a symbolic link, at the given path. The link may have been replaced.
 */

const markOf = (path: string): string => `${path}.modified`;

const TEXT =
  'The log beside this file was modified, replaced or removed while it was open. Put it back if it was replaced, truncated or removed, verify it, and then remove this file.\n';

/**
 * Marks a log at all of its paths, durably. Reports each failure. Resolves to whether all marks
 * were created.
 */
export async function leaveMarks(log: files.LockedLog): Promise<boolean> {
  const { system, paths, report } = log;
  let areAllCreated = true;
  for (const path of paths) {
    const mark = markOf(path);
    try {
      await leaveMark(system, mark);
    } catch (error) {
      areAllCreated = false;
      report(
        `${mark}: ${reasonOf(error)}; without this file, nothing keeps the log from being opened again`,
      );
    }
  }
  return areAllCreated;
}

async function leaveMark(system: System, mark: string): Promise<void> {
  const folder = dirname(mark);
  // The folder may have been removed or renamed. The next start would create a new one.
  await files.createFolder(system, folder);
  const file = await files.openToWrite(system, mark);
  try {
    // Written with O_DSYNC, the text makes the mark durable even if fsync is denied.
    await file.append(Buffer.from(TEXT)).finally(() => file.close());
  } finally {
    // Even if there is no room for the text: an empty file is a mark, too.
    await files.syncFolder(system, folder);
  }
}

/** @throws PlantStoreError `unavailable` if the log at `path` is marked. */
export async function requireUnmarked(system: System, path: string): Promise<void> {
  const mark = markOf(path);
  try {
    // Only tests whether the mark exists. Not with `statSync`, which would block the event loop if
    // the disk hangs.
    await system.realpath(mark);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return;
    throw toStoreError(path, error);
  }
  throw storeErrors.marked(path, mark);
}
