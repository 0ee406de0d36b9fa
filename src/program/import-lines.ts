import { createReadStream } from 'node:fs';
import { addAbortSignal } from 'node:stream';

import { MAX_RECORD_BYTES, NEWLINE } from '../log/record.js';
import { reasonOf } from '../system-error.js';

/** The name of a file that means stdin. */
const STDIN = '-';
/** The lines that end in one chunk are read together: of 60 bytes each, 4,000. */
const CHUNK_BYTES = 262_144;

export function isBlank(line: Buffer): boolean {
  return /^[ \t\r]*$/.test(line.toString('latin1'));
}

/**
 * Reads the lines of a file, without their newlines: those that end in a chunk together, but one of several chunks
 * alone. The last line may lack its newline.
 *
 * @throws Error if the file cannot be read; before the first lines, if the first one that is not blank is no JSON object.
 */
export async function* readLines(
  file: string,
  stop: AbortSignal,
): AsyncGenerator<readonly Buffer[]> {
  let count = 0;
  let isChecked = false;
  for await (const lines of splitLines(file, stop)) {
    const first = isChecked ? -1 : lines.findIndex((line) => !isBlank(line));
    if (first !== -1) {
      if (!isObject(lines[first]))
        throw new Error(
          `${file}: line ${count + first + 1} is not a JSON object; the file must be JSON lines, one plant a line; nothing was imported`,
        );
      isChecked = true;
    }
    count += lines.length;
    yield lines;
  }
}

/** Whether a line is a JSON object, which a byte order mark may precede. */
function isObject(line: Buffer | undefined): boolean {
  try {
    const text = String(line).replace(/^\ufeff/, '');
    JSON.parse(text);
    return text.trimStart().startsWith('{');
  } catch {
    return false;
  }
}

async function* splitLines(file: string, stop: AbortSignal): AsyncGenerator<readonly Buffer[]> {
  let count = 0;
  /** The chunks that hold the beginning of a line. */
  let begun: Buffer[] = [];
  let begunBytes = 0;
  for await (const chunk of readChunks(file, stop)) {
    let start = 0;
    const lines: Buffer[] = [];
    for (let end; (end = chunk.indexOf(NEWLINE, start)) !== -1; start = end + 1) {
      const line = Buffer.concat([...begun, chunk.subarray(start, end)]);
      count++;
      // Together with others, a large line may exceed what may wait for the store.
      if (begun.length > 1) yield [line];
      else lines.push(line);
      [begun, begunBytes] = [[], 0];
    }
    if (lines.length > 0) yield lines;
    begun.push(chunk.subarray(start));
    begunBytes += chunk.length - start;
    if (begunBytes > MAX_RECORD_BYTES)
      throw new RangeError(
        `${file}: line ${count + 1} is longer than ${MAX_RECORD_BYTES} bytes; nothing from there on was read`,
      );
  }
  yield begunBytes > 0 ? [Buffer.concat(begun)] : [];
}

async function* readChunks(file: string, signal: AbortSignal): AsyncGenerator<Buffer> {
  try {
    if (file === STDIN) yield* addAbortSignal(signal, process.stdin);
    else yield* createReadStream(file, { highWaterMark: CHUNK_BYTES, signal });
  } catch (cause) {
    throw new Error(`${file}: ${reasonOf(cause)}`, { cause });
  }
}
