import { createReadStream } from 'node:fs';
import { addAbortSignal } from 'node:stream';

import { NEWLINE } from '../../log/encode.js';
import { MAX_RECORD_BYTES } from '../../log/record.js';
import { reasonOf } from '../../system-error.js';

/** The name of a file that means stdin. */
const STDIN_NAME = '-';
/**
 * How much of a file is read at once. All lines that end in one chunk are returned together: 4,000
 * lines of 60 bytes, for example.
 */
const CHUNK_BYTES = 262_144;

const BLANK = /^[ \t\r]*$/;

/** A line, without its newline, and its number, from 1. */
export interface Line {
  readonly number: number;
  readonly bytes: Buffer;
}

/**
 * Reads the lines of a file that are not blank: for each chunk of the file, those that end in it.
 * The last line may lack its newline.
 *
 * @throws Error if the file cannot be read, or, before any line is yielded, if the first line is no
 * JSON object; RangeError if a line is too long.
 */
export async function* readLines(file: string, stop: AbortSignal): AsyncGenerator<readonly Line[]> {
  let count = 0;
  let isFirst = true;
  /** The pieces of the line whose end has not been read, and how many bytes they have. */
  let pieces: Buffer[] = [];
  let pieceBytes = 0;

  /** Returns the line that ends with these bytes. */
  function endLine(lastPiece: Buffer): Line {
    const bytes = Buffer.concat([...pieces, lastPiece]);
    [pieces, pieceBytes] = [[], 0];
    count++;
    return { number: count, bytes };
  }

  /** Returns the lines that are not blank. Checks the first line of the file that is not. */
  function withoutBlank(lines: readonly Line[]): readonly Line[] {
    const filled = lines.filter(({ bytes }) => !BLANK.test(bytes.toString('latin1')));
    const [first] = filled;
    if (isFirst && first && !holdsObject(first.bytes))
      throw new Error(
        `${file}: line ${first.number} is not a JSON object; the file must be JSON lines, ` +
          'one plant a line; nothing was imported',
      );
    if (first) isFirst = false;
    return filled;
  }

  for await (const chunk of readChunks(file, stop)) {
    const lines: Line[] = [];
    let start = 0;
    let end = chunk.indexOf(NEWLINE);
    while (end !== -1) {
      lines.push(endLine(chunk.subarray(start, end)));
      start = end + 1;
      end = chunk.indexOf(NEWLINE, start);
    }
    yield withoutBlank(lines);
    pieces.push(chunk.subarray(start));
    pieceBytes += chunk.length - start;
    if (pieceBytes > MAX_RECORD_BYTES)
      throw new RangeError(
        `${file}: line ${count + 1} is longer than ${MAX_RECORD_BYTES} bytes; ` +
          'nothing from there on was read',
      );
  }
  yield withoutBlank([endLine(Buffer.alloc(0))]);
}

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
