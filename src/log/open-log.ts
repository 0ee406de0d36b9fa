import type { Report } from '../report.js';
import type { FileId, OpenFile } from './files.js';
import type { System } from './system.js';

/** The file of a log that is open and locked, as the parts of the log share it. */
export interface OpenLog {
  readonly system: System;
  readonly file: OpenFile;
  /** The path of the file, absolute and without symbolic links. */
  readonly path: string;
  /** This path, and the path that was given, if it leads here through a symbolic link. */
  readonly paths: readonly string[];
  /** Identifies the file, to notice if another one has its path. */
  readonly fileId: FileId;
  /** Never throws. Its rate is not limited. */
  readonly report: Report;
}
