import { constants, createReadStream } from 'node:fs';
import { access } from 'node:fs/promises';
import { crc32 } from 'node:zlib';

import { failures } from '../http/failures.js';
import { MAX_RECORD_BYTES, NEWLINE } from '../log/record.js';
import type { NewPlant } from '../plant.js';
import { parseNewPlant, type PlantFault } from '../plant-json.js';
import { pluralize } from '../pluralize.js';
import type { PlantStore } from '../store.js';
import { reasonOf } from '../system-error.js';
import { copyPlants } from './copy.js';
import { EXIT, type ExitCode } from './exit.js';
import { printLine } from './output.js';
import { transfer } from './transfer.js';

/** The name of a file that means stdin. */
const STDIN = '-';
const CHUNK_BYTES = 262_144;
/** The checksum of a record of the log: of the bytes before it, if it is the last member. */
const CHECKSUM = /,\s*"crc32"\s*:\s*(\d+)\s*\}\s*$/;

/**
 * The command `import`: adds the plants in a file to a store. Each line is a plant as `POST /plants` takes it, or
 * a record of a log, whose `crc32` must match. Prints the lines that are refused, each with its number and the
 * reason that the response would have, or that `crc32` does not match. Importing the same file again is faster if `storedPlants` is given.
 */
export async function importPlants(
  file: string,
  store: PlantStore,
  stop: AbortSignal,
  storedPlants?: AsyncIterable<NewPlant>,
): Promise<ExitCode> {
  const stored = storedPlants?.[Symbol.asyncIterator]();
  let refused = 0;
  function printRefusal(line: number, reason: string): Promise<void> | undefined {
    refused++;
    return printLine(`line ${line}: ${reason}`);
  }

  async function* plants(): AsyncGenerator<NewPlant & { readonly line: number }> {
    let line = 0;
    for await (const bytes of linesOf(file)) {
      line++;
      // One character for each byte.
      const text = bytes.toString('latin1');
      if (/^[ \t\r]*$/.test(text)) continue;
      const parsed = parseLine(bytes, text);
      if (typeof parsed === 'string') await printRefusal(line, parsed);
      else yield { ...parsed, line };
    }
  }

  await transfer(
    `importing ${file}`,
    stop,
    (onProgress) =>
      copyPlants(plants(), store, {
        onProgress,
        ...(stored && { stored }),
        onDifferent: ({ line }) => printRefusal(line, failures.conflict.message),
      }),
    ({ created, unchanged }) =>
      `${file}: ${pluralize(created, 'plant')} imported, ${unchanged} unchanged, ${pluralize(refused, 'line')} refused`,
  );
  return refused === 0 ? EXIT.done : EXIT.failed;
}

/**
 * Checks that a file can be read, before anything is created for the import.
 *
 * @throws Error that names the file.
 */
export async function checkReadable(file: string): Promise<void> {
  if (file === STDIN) return;
  await access(file, constants.R_OK).catch((error: unknown) => {
    throw unreadable(file, error);
  });
}

function unreadable(file: string, cause: unknown): Error {
  return new Error(`${file}: ${reasonOf(cause)}`, { cause });
}

async function* chunksOf(file: string): AsyncGenerator<Buffer> {
  try {
    yield* file === STDIN ? process.stdin : createReadStream(file, { highWaterMark: CHUNK_BYTES });
  } catch (error) {
    throw unreadable(file, error);
  }
}

/** The lines of a file, without their newlines. The last one may lack it. */
async function* linesOf(file: string): AsyncGenerator<Buffer> {
  let line = 1;
  /** The chunks that hold the beginning of a line. */
  let begun: Buffer[] = [];
  let begunBytes = 0;
  for await (const chunk of chunksOf(file)) {
    let start = 0;
    for (let end; (end = chunk.indexOf(NEWLINE, start)) !== -1; start = end + 1) {
      yield Buffer.concat([...begun, chunk.subarray(start, end)]);
      [begun, begunBytes] = [[], 0];
      line++;
    }
    begun.push(chunk.subarray(start));
    begunBytes += chunk.length - start;
    if (begunBytes > MAX_RECORD_BYTES)
      throw new RangeError(
        `${file}: line ${line} is longer than ${MAX_RECORD_BYTES} bytes; nothing from there on was read`,
      );
  }
  if (begunBytes > 0) yield Buffer.concat(begun);
}

/** The plant in a line, or why it is refused. */
function parseLine(line: Buffer, text: string): NewPlant | string {
  const match = CHECKSUM.exec(text);
  if (match && Number(match[1]) !== crc32(line.subarray(0, match.index)))
    return 'crc32: does not match the bytes before it';
  try {
    return parseNewPlant(line);
  } catch (error) {
    return (error as PlantFault).describe('the line');
  }
}
