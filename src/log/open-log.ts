import type { Report } from '../report.js';
import type { FileId, OpenFile } from './files.js';
import type { IdIndex } from './ids.js';
import type { System } from './system.js';

/** What makes up a log that is open and locked, and whose lines have been checked. */
export interface OpenLog {
  readonly system: System;
  readonly file: OpenFile;
  readonly path: string;
  /** To notice if the file at `path` is replaced. */
  readonly fileId: FileId;
  /** The byte offset at which the last line of the file ends. */
  readonly end: number;
  /** The ids of the plants in the file, to which those that become durable are added. */
  readonly index: IdIndex;
  readonly report: Report;
}
