import { dirname } from 'node:path';

import { codeOf, reasonOf } from '../system-error.js';
import { storeErrors, toStoreError } from './errors.js';
import * as files from './files.js';
import type { System } from './system.js';

/*
 * The mark of a log whose file another process has modified, replaced or removed while it was open:
 * a file beside it. An emptied log would give stored ids to other plants, and whatever supervises a
 * process starts it again at once. So a marked log is not opened until somebody has looked at it
 * and removed the mark.
 *
 * A log has a mark for each path that may lead a start to it: its real path, and the path that was
 * given, if that leads through a symbolic link. The link may be what was replaced.
 */

const markOf = (path: string): string => `${path}.modified`;

const TEXT =
  'The log beside this file was modified, replaced or removed while it was open. Put it back if it was replaced, truncated or removed, verify it, and then remove this file.\n';

/**
 * Marks a log at all of its paths, durably. Reports each failure; resolves to whether there was
 * none.
 */
export async function leaveMarks(log: files.LockedLog): Promise<boolean> {
  const { system, paths, report } = log;
  let areLeft = true;
  for (const path of paths) {
    const mark = markOf(path);
    try {
      await leaveMark(system, mark);
    } catch (error) {
      areLeft = false;
      report(
        `${mark}: ${reasonOf(error)}; without this file, nothing keeps the log from being opened again`,
      );
    }
  }
  return areLeft;
}

async function leaveMark(system: System, mark: string): Promise<void> {
  const folder = dirname(mark);
  // The folder may have been removed or renamed. The next start would create it.
  await files.createFolder(system, folder);
  const file = await files.openToWrite(system, mark);
  // Where fsync is denied, an empty file would not survive a power cut.
  const written = file.append(Buffer.from(TEXT)).finally(() => file.close());
  // Even if there is no room for the text: an empty file is a mark, too.
  await written.finally(() => files.syncFolder(system, folder));
}

/** @throws PlantStoreError `unavailable` if the log at `path` is marked. */
export async function requireUnmarked(system: System, path: string): Promise<void> {
  const mark = markOf(path);
  try {
    await system.realpath(mark);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return;
    throw toStoreError(path, error);
  }
  throw storeErrors.marked(path, mark);
}
