import { createReadStream } from 'node:fs';
import { addAbortSignal } from 'node:stream';

import { failures } from '../http/failures.js';
import type { PlantLog } from '../log/log.js';
import { MAX_RECORD_BYTES, NEWLINE, parseLine } from '../log/record.js';
import { PlantFault } from '../plant-json.js';
import { oncePerSecond, pluralize } from '../report.js';
import { PlantStoreError, type PlantStore } from '../store.js';
import { reasonOf } from '../system-error.js';
import { EXIT, printLine, type ExitCode } from './exit.js';

/** The name of a file that means stdin. */
const STDIN = '-';
/** The lines that end in one chunk are added together: of 60 bytes each, 4,000. */
const CHUNK_BYTES = 262_144;
/** How many refused lines are listed; the others are counted. */
export const MAX_LISTED = 20;

/**
 * The command `import`: adds the plants in a file to a store, which is opened once the file shows JSON lines. Each
 * line is a plant as `POST /plants` takes it, or a record of a log, whose `crc32` must match. Prints the first lines
 * that are refused, each with its number and the reason that the response would have, and the number of all. It
 * can be repeated: plants that were imported before are compared.
 *
 * @throws Error if the file cannot be read or does not hold JSON lines, or the first error of the store that is not
 * about a plant.
 */
export async function importPlants(
  file: string,
  open: () => Promise<PlantStore & Partial<Pick<PlantLog, 'poisoned'>>>,
  stop: AbortSignal,
): Promise<ExitCode> {
  const counts = { created: 0, unchanged: 0, refused: 0 };
  const report = oncePerSecond();
  let store: Awaited<ReturnType<typeof open>> | undefined;
  let line = 0;
  try {
    for await (const lines of textLinesOf(file, stop)) {
      const opened = (store ??= await open());
      const outcomes = await Promise.allSettled(lines.map((bytes) => addLine(opened, bytes)));
      let failure: Error | undefined;
      for (const outcome of outcomes) {
        line++;
        if (outcome.status === 'fulfilled') {
          if (outcome.value) counts[outcome.value]++;
          continue;
        }
        const cause: unknown = outcome.reason;
        const reason = refusalFor(cause);
        if (reason === undefined)
          failure ??= new Error(`${file}: line ${line}: ${reasonOf(cause)}`, { cause });
        else if (++counts.refused <= MAX_LISTED) await printLine(`line ${line}: ${reason}`);
      }
      stop.throwIfAborted();
      if (failure) throw failure;
      report(() => `importing ${file}: ${pluralize(counts.created + counts.unchanged, 'plant')}`);
    }
  } finally {
    const { created, unchanged, refused } = counts;
    if (store)
      console.log(
        `${file}: ${pluralize(created, 'plant')} imported, ${unchanged} unchanged, ${pluralize(refused, 'line')} refused`,
      );
  }
  await store?.close();
  // If the file was emptied meanwhile, the plants are not there.
  store?.poisoned?.throwIfAborted();
  return counts.refused === 0 ? EXIT.done : EXIT.failed;
}

/** Adds the plant in a line, if the line is not blank. */
async function addLine(
  store: PlantStore,
  line: Buffer,
): Promise<'created' | 'unchanged' | undefined> {
  if (/^[ \t\r]*$/.test(line.toString('latin1'))) return undefined;
  return store.add(parseLine(line).plant);
}

/** Why a line is refused; `undefined` for an error that is not about the line. */
function refusalFor(error: unknown): string | undefined {
  if (error instanceof PlantFault) return error.describe('the line');
  // The plant is too large for the store.
  if (error instanceof RangeError) return error.message;
  return error instanceof PlantStoreError && error.code === 'conflict'
    ? failures.conflict.message
    : undefined;
}

/**
 * The lines of a file, without their newlines: those that end in a chunk together, but one of several chunks alone.
 * The last line may lack its newline.
 *
 * @throws Error if the file cannot be read or, before its first lines, if it does not hold JSON lines.
 */
async function* textLinesOf(file: string, stop: AbortSignal): AsyncGenerator<readonly Buffer[]> {
  let count = 0;
  let isFirst = true;
  /** The chunks that hold the beginning of a line. */
  let begun: Buffer[] = [];
  let begunBytes = 0;
  for await (const chunk of chunksOf(file, stop)) {
    let start = 0;
    if (isFirst) {
      const other = formatOf(chunk);
      if (other)
        throw new Error(
          `${file}: is ${other}, not JSON lines, one plant a line; nothing was imported`,
        );
      isFirst = false;
    }
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

async function* chunksOf(file: string, signal: AbortSignal): AsyncGenerator<Buffer> {
  try {
    if (file === STDIN) yield* addAbortSignal(signal, process.stdin);
    else yield* createReadStream(file, { highWaterMark: CHUNK_BYTES, signal });
  } catch (cause) {
    throw new Error(`${file}: ${reasonOf(cause)}`, { cause });
  }
}

function holdsPlant(line: Buffer): boolean {
  try {
    parseLine(line);
    return true;
  } catch {
    return false;
  }
}

/** How files begin that are often taken for JSON lines. */
const FORMATS: readonly (readonly [start: RegExp, what: string])[] = [
  [/^\x1f\x8b/, 'compressed by gzip'],
  [/^BZh/, 'compressed by bzip2'],
  [/^\xfd7zXZ\0/, 'compressed by xz'],
  [/^\x28\xb5\x2f\xfd/, 'compressed by zstd'],
  [/^PK\x03\x04/, 'a zip archive'],
  [/^SQLite format 3\0/, 'an SQLite database'],
  [/^(?:\xff\xfe|\xfe\xff|\{\0|\0\{)/, 'text in UTF-16'],
  [/^(?!\0*\{)[^]{0,99}[\0-\x08\x0e-\x1a]/, 'binary'],
  [
    /^\s*\[/,
    'a JSON array (jq -c ".[]" writes its elements on lines, but before jq 1.7 rounds large ids)',
  ],
  [
    /^\s*\{\s*"[^"\n]*"\s*:\s*\[\s*\{/,
    'an object around a JSON array (jq -c ".[][]" writes its elements on lines, but before jq 1.7 rounds large ids)',
  ],
  [
    /^\s*\{(?:[^\n]*[,:[{])?[ \t\r]*\n/,
    'JSON that goes on after its first line (jq -c . writes each value on one, but before jq 1.7 rounds large ids)',
  ],
];

/** What a file is by its first chunk, if it is not JSON lines. */
function formatOf(chunk: Buffer): string | undefined {
  if (holdsPlant(chunk.subarray(0, chunk.indexOf(NEWLINE) + 1 || chunk.length))) return undefined;
  // One character for each byte, and none for a byte order mark.
  const text = chunk.toString('latin1').replace(/^\xef\xbb\xbf/, '');
  const [, what] = FORMATS.find(([start]) => start.test(text)) ?? [];
  if (what !== undefined || text.trim() === '') return what;
  // Not \s, which would take quadratic time for blank lines.
  if (/^[ \t]*\{/m.test(text)) return undefined;
  return 'text without a line that begins with a brace';
}
