import { createReadStream } from 'node:fs';
import { addAbortSignal } from 'node:stream';

import { MAX_RECORD_BYTES, NEWLINE } from '../../log/record.js';
import { reasonOf } from '../../system-error.js';

/** The name of a file that means stdin. */
const STDIN_NAME = '-';
/** The lines that end in one chunk are read together: of 60 bytes each, 4,000. */
const CHUNK_BYTES = 262_144;

/** A line that is not blank, without its newline, and its number, from 1. */
export interface Line {
  readonly number: number;
  readonly bytes: Buffer;
}

/**
 * Reads the lines of a file that are not blank, those that end in a chunk together. The last line may lack its newline.
 *
 * @throws Error if the file cannot be read, or if its first line that is not blank is no JSON object: then no line has
 * been yielded.
 */
export async function* readLines(file: string, stop: AbortSignal): AsyncGenerator<readonly Line[]> {
  let count = 0;
  let isFirst = true;
  /** The chunks that hold the beginning of a line. */
  let begun: Buffer[] = [];
  let begunBytes = 0;

  /** Ends the line that has begun. Returns it, unless it is blank. */
  function endLine(rest: Buffer): Line[] {
    const bytes = Buffer.concat([...begun, rest]);
    [begun, begunBytes] = [[], 0];
    count++;
    if (BLANK.test(bytes.toString('latin1'))) return [];
    if (isFirst && !holdsObject(bytes))
      throw new Error(
        `${file}: line ${count} is not a JSON object; the file must be JSON lines, one plant a line; nothing was imported`,
      );
    isFirst = false;
    return [{ number: count, bytes }];
  }

  for await (const chunk of readChunks(file, stop)) {
    let start = 0;
    const lines: Line[] = [];
    for (let end; (end = chunk.indexOf(NEWLINE, start)) !== -1; start = end + 1)
      lines.push(...endLine(chunk.subarray(start, end)));
    yield lines;
    begun.push(chunk.subarray(start));
    begunBytes += chunk.length - start;
    if (begunBytes > MAX_RECORD_BYTES)
      throw new RangeError(
        `${file}: line ${count + 1} is longer than ${MAX_RECORD_BYTES} bytes; nothing from there on was read`,
      );
  }
  yield endLine(Buffer.alloc(0));
}

const BLANK = /^[ \t\r]*$/;

/** Whether a line is a JSON object, which a byte order mark may precede. */
function holdsObject(line: Buffer): boolean {
  try {
    const text = String(line).replace(/^\ufeff/, '');
    JSON.parse(text);
    return text.trimStart().startsWith('{');
  } catch {
    return false;
  }
}

async function* readChunks(file: string, signal: AbortSignal): AsyncGenerator<Buffer> {
  try {
    if (file === STDIN_NAME) yield* addAbortSignal(signal, process.stdin);
    else yield* createReadStream(file, { highWaterMark: CHUNK_BYTES, signal });
  } catch (cause) {
    throw new Error(`${file}: ${reasonOf(cause)}`, { cause });
  }
}
