import { damageReasons } from './errors.js';
import { statRegularFile, type OpenFile } from './files.js';
import type { IdIndex } from './ids.js';
import { NEWLINE } from './encode.js';
import { areOfLog, partsOf, type Line, type Part } from './lines.js';

/** How the lines of a log are read. */
export interface ReadingOptions {
  /** Called while lines are read, with the number of bytes read and the size of the file. */
  readonly onProgress?: ((bytes: number, totalBytes: number) => void) | undefined;
  /**
   * Aborted to stop reading. The call then rejects with an error whose `cause` is the reason of the
   * signal.
   */
  readonly signal?: AbortSignal | undefined;
}

/** Lines that were read together and checked. */
export interface CheckedPart extends Part {
  /** The number of plants in the file up to here. */
  readonly plants: number;
  /** The lines that are not records, or that repeat the id of an earlier line. */
  readonly damaged: readonly Line[];
  /** Whether the last line of the file is a record without its newline. */
  readonly lacksNewline: boolean;
  /** Whether the file is a log, as far as it has been read: see {@link areOfLog}. */
  readonly isLog: boolean;
}

/**
 * Checks the lines of a log, and adds the id of each plant to an index, with the byte offset of its
 * line.
 *
 * @throws Error if the file is not a regular one.
 */
export async function* checkLines(
  file: OpenFile,
  index: IdIndex,
  { onProgress, signal }: ReadingOptions = {},
): AsyncGenerator<CheckedPart, void> {
  // An empty log has no part: the loop below would never look at the signal.
  signal?.throwIfAborted();
  const size = Number((await statRegularFile(file)).size);
  let isLog = false;
  for await (const part of partsOf(file)) {
    const { bytes, lines, end } = part;
    isLog ||= areOfLog(part);
    const damaged: Line[] = [];
    for (const line of lines) {
      const checked = addToIndex(index, line);
      if (checked.damage !== undefined) damaged.push(checked);
    }
    // Only the last part can lack its newline, and it has one line at most.
    const lacksNewline = bytes.at(-1) !== NEWLINE && lines.length > 0 && damaged.length === 0;
    yield { ...part, plants: index.size, damaged, lacksNewline, isLog };
    // A server may append to the file meanwhile.
    onProgress?.(Math.min(end, size), size);
    signal?.throwIfAborted();
  }
}

/**
 * Adds the id of a line to an index. Returns the line; if the index has the id already, returns a
 * damaged line without a plant instead.
 */
function addToIndex(index: IdIndex, line: Line): Line {
  const { number, offset, length, id } = line;
  const indexed = id === undefined ? undefined : index.add(id, offset);
  if (indexed === undefined) return line;
  return { number, offset, length, damage: damageReasons.repeatedId(indexed) };
}
