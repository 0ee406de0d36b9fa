import { createWriteStream, fstatSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { finished } from 'node:stream/promises';

import { readPlantLog } from '../../log/read.js';
import { membersInJson, type StoredPlant } from '../../plant.js';
import { pluralize } from '../../report.js';
import { reasonOf } from '../../system-error.js';
import { readDatabase } from '../database.js';
import { EXIT, type ExitCode } from '../exit.js';
import { namingSetting, withLog } from '../open-store.js';
import { createProgressPrinter } from '../output.js';
import { readStoreSettings } from '../settings/read.js';

const STDOUT = 1;
/** How many characters are written together. */
const CHUNK_LENGTH = 65_536;

/**
 * The command `export`: prints all plants in the log at `file`, or, if no file is given, in the
 * configured log or database. Each is a JSON object in a line, as `import` takes it. A server may
 * have the log open.
 *
 * @throws Error if plants cannot be read or written, or if `stop` is aborted before the command
 * ends.
 */
export async function exportPlants(file: string | undefined, stop: AbortSignal): Promise<ExitCode> {
  if (file === undefined) {
    const settings = await readStoreSettings(process.env);
    const url = settings.PLANT_STORE_DATABASE_URL;
    if (url !== undefined) {
      const printed = printPlants(readDatabase(url, settings, stop), stop);
      return namingSetting('PLANT_STORE_DATABASE_URL', printed);
    }
  }
  return withLog(file, (path) => printPlants(readPlantLog(path), stop));
}

async function printPlants(
  plants: AsyncIterable<StoredPlant>,
  stop: AbortSignal,
): Promise<ExitCode> {
  const output = openOutput();
  const printProgress = createProgressPrinter();
  let lines = '';
  let count = 0;
  for await (const plant of plants) {
    lines += `{"id":${plant.id},${membersInJson(plant)}}\n`;
    count++;
    if (lines.length < CHUNK_LENGTH) continue;
    await output.write(lines);
    stop.throwIfAborted();
    lines = '';
    printProgress(() => `exporting: ${pluralize(count, 'plant')}`);
  }
  await output.write(lines);
  await output.close();
  stop.throwIfAborted();
  return EXIT.done;
}

/** The standard output. Both functions reject if it has not taken everything that was written. */
interface Output {
  write(text: string): Promise<void>;
  close(): Promise<void>;
}

function openOutput(): Output {
  if (!fstatSync(STDOUT).isFile()) return outputTo(process.stdout, () => Promise.resolve());
  // Not process.stdout, which does not notice if a full disk takes only a part of a write.
  const file = createWriteStream('', { fd: STDOUT });
  // NFS, SMB and file systems in user space may report a full disk only when the file is closed.
  return outputTo(file, () => finished(file.end()));
}

function outputTo(stream: Writable, close: () => Promise<void>): Output {
  // Without a listener, an error would end the process before it rejects the write.
  stream.on('error', () => undefined);
  const write = (text: string): Promise<void> =>
    new Promise((resolve, reject) => {
      stream.write(text, (error) => (error ? reject(error) : resolve()));
    });
  const fail = (cause: unknown): never => {
    throw new Error(`not all plants were printed: ${reasonOf(cause)}`, { cause });
  };
  return { write: (text) => write(text).catch(fail), close: () => close().catch(fail) };
}
