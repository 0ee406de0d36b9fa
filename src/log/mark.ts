import { dirname } from 'node:path';

import type { Report } from '../report.js';
import { codeOf, reasonOf } from '../system-error.js';
import { storeErrors, toStoreError } from './errors.js';
import * as files from './files.js';
import type { System } from './system.js';

/*
 * The mark of a log whose file something else has modified, replaced or removed while it was open: an empty file
 * beside it. An emptied log would give stored ids to other plants, and whatever supervises a process starts it again
 * at once. So a marked log is not opened until somebody has looked at it, and removed the mark.
 */

const markOf = (path: string): string => `${path}.modified`;

/** Marks the log at `path` durably. Reports if that fails. */
export async function leaveMark(system: System, path: string, report: Report): Promise<void> {
  const mark = markOf(path);
  try {
    const file = await files.openLogFile(system, mark);
    await file.close();
    await files.syncFolder(system, dirname(mark));
  } catch (error) {
    report(
      `${mark}: ${reasonOf(error)}; without this file, nothing keeps the log from being opened again`,
    );
  }
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
