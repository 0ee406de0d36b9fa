import { damages, type Damage } from './errors.js';
import { statRegularFile, type OpenFile } from './files.js';
import type { IdIndex } from './ids.js';
import { linesOf, type Lines } from './lines.js';
import { beginsAsRecord, NEWLINE, type Found } from './record.js';

/** How the lines of a log are read. */
export interface CheckOptions {
  /** Called while lines are read, with the number of bytes read and the size of the file. */
  readonly onProgress?: (bytes: number, totalBytes: number) => void;
  /** Aborted to stop reading, which then rejects with the reason of the signal, or with an error whose cause it is. */
  readonly signal?: AbortSignal;
}

/** What was found in lines that were read together. */
export interface Checked extends Lines {
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
  { onProgress, signal }: CheckOptions = {},
): AsyncGenerator<Checked, void> {
  const size = Number((await statRegularFile(file)).size);
  let number = 0;
  let isLog = false;
  for await (const part of linesOf(file)) {
    const { offset, bytes, lines, torn } = part;
    const damaged: Damage[] = [];
    for (const found of lines) {
      number++;
      const at = offset + found.start;
      isLog ||= found.kind !== 'noPlant' || beginsAsRecord(bytes.subarray(found.start), at);
      const damage = damageOf(found, at, index);
      if (!damage) continue;
      const line = bytes.subarray(found.start, found.end);
      damaged.push({ line: number, offset: at, bytes: line, ...damage });
    }
    isLog ||= torn.length > 0 && beginsAsRecord(torn, part.end);
    // A last line without its newline comes on its own.
    const lacksNewline = bytes.at(-1) !== NEWLINE && lines.length > damaged.length;
    yield { ...part, plants: index.size, damaged, lacksNewline, isLog };
    // A server may append to the file meanwhile.
    onProgress?.(Math.min(part.end, size), size);
    signal?.throwIfAborted();
  }
}

/** Why a line at a byte offset is damaged, if so. Adds its id to the index, unless that has it for another line. */
function damageOf(
  found: Found,
  offset: number,
  index: IdIndex,
): Pick<Damage, 'reason' | 'rewritable'> | undefined {
  if (found.kind === 'noPlant') return { reason: found.reason };
  const { id } = found.kind === 'record' ? found : found.plant;
  const indexed = index.add(id, offset);
  // Lines may be checked again with an index that has them.
  if (indexed !== undefined && indexed !== offset) return { reason: damages.repeatedId(indexed) };
  return found.kind === 'record' ? undefined : { reason: found.reason, rewritable: found.plant };
}
