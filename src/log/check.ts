import type { NewPlant } from '../plant.js';
import { damages } from './errors.js';
import { statRegularFile, type OpenFile } from './files.js';
import type { IdIndex } from './ids.js';
import { partsOf, type Part } from './lines.js';
import { beginsAsRecord, NEWLINE, type Found } from './record.js';

/** How the lines of a log are read. */
export interface ReadingOptions {
  /** Called while lines are read, with the number of bytes read and the size of the file. */
  readonly onProgress?: (bytes: number, totalBytes: number) => void;
  /** Aborted to stop reading. The call then rejects with an error whose `cause` is the reason of the signal. */
  readonly signal?: AbortSignal;
}

/** A line of the log that is not a valid record, or repeats the id of another one. */
export interface Damage {
  /** The number of the line, from 1. */
  readonly line: number;
  /** The byte offset at which the line starts. */
  readonly offset: number;
  /** Its bytes, with its newline. */
  readonly bytes: Buffer;
  readonly reason: string;
  /** The plant in it, if the line can be written again as its record. */
  readonly rewritable?: NewPlant | undefined;
}

/** What was found in lines that were read together. */
export interface Checked extends Part {
  /** The number of plants up to here. */
  readonly plants: number;
  readonly damaged: readonly Damage[];
  /** Whether the last line of the file is a record without its newline. */
  readonly lacksNewline: boolean;
  /** Whether the file is a log, as far as it has been read: whether a line holds a plant, or begins as a record. */
  readonly isLog: boolean;
}

/**
 * Checks the lines of a log, and adds the id of each plant to an index, with the byte offset of its line. A line
 * is damaged if it is not a record, or if the index has its id for another line.
 *
 * @throws Error if the file is not a regular one.
 */
export async function* checkLines(
  file: OpenFile,
  index: IdIndex,
  { onProgress, signal }: ReadingOptions = {},
): AsyncGenerator<Checked, void> {
  // In an empty log, there are no lines behind which the signal is checked.
  signal?.throwIfAborted();
  const size = Number((await statRegularFile(file)).size);
  let number = 0;
  let isLog = false;
  for await (const part of partsOf(file)) {
    const { offset, bytes, lines, torn } = part;
    const damaged: Damage[] = [];
    for (const found of lines) {
      number++;
      const at = offset + found.start;
      isLog ||= found.kind !== 'noPlant' || beginsAsRecord(bytes.subarray(found.start), at);
      const damage = addToIndex(index, found, at);
      if (!damage) continue;
      const line = bytes.subarray(found.start, found.end);
      damaged.push({ line: number, offset: at, bytes: line, ...damage });
    }
    isLog ||= torn.length > 0 && beginsAsRecord(torn, part.end);
    // A last line without its newline comes on its own: it is a record unless it is damaged.
    const lacksNewline = bytes.at(-1) !== NEWLINE && lines.length > damaged.length;
    yield { ...part, plants: index.size, damaged, lacksNewline, isLog };
    // A server may append to the file meanwhile.
    onProgress?.(Math.min(part.end, size), size);
    signal?.throwIfAborted();
  }
}

/** Adds the id of a line at a byte offset to an index. Returns why the line is damaged, if it is. */
function addToIndex(
  index: IdIndex,
  found: Found,
  offset: number,
): Pick<Damage, 'reason' | 'rewritable'> | undefined {
  if (found.kind === 'noPlant') return { reason: found.reason };
  const { id } = found.kind === 'record' ? found : found.plant;
  const indexed = index.add(id, offset);
  // A repair checks the lines again with the same index.
  if (indexed !== undefined && indexed !== offset) return { reason: damages.repeatedId(indexed) };
  return found.kind === 'record' ? undefined : { reason: found.reason, rewritable: found.plant };
}
