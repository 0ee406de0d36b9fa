import { createWriteStream, fstatSync } from 'node:fs';
import type { Writable } from 'node:stream';

import { readPlantLog } from '../../log/read.js';
import { membersInJson, type StoredPlant } from '../../plant.js';
import { pluralize } from '../../report.js';
import { reasonOf } from '../../system-error.js';
import { plantsInDatabase } from '../database.js';
import { EXIT, type ExitCode } from '../exit.js';
import { openStore, withLog } from '../open-store.js';
import { oncePerSecond } from '../output.js';
import { readStoreSettings } from '../settings/read.js';

const STDOUT = 1;
/** How many characters are written together. */
const CHUNK_LENGTH = 65_536;

/**
 * The command `export`: prints all plants, one JSON object a line as `import` takes them, of the log at `file`, or else
 * of the configured log or database. A server may have the log open.
 *
 * @throws Error if plants cannot be read or written, or once `stop` is aborted: then not all are printed.
 */
export async function exportPlants(file: string | undefined, stop: AbortSignal): Promise<ExitCode> {
  if (file === undefined) {
    const settings = await readStoreSettings(process.env);
    if (settings.PLANT_STORE_DATABASE_URL !== undefined)
      return printPlants(plantsInDatabase(openStore(settings, 'fail', stop)), stop);
  }
  return withLog(file, (path) => printPlants(readPlantLog(path), stop));
}

async function printPlants(
  plants: AsyncIterable<StoredPlant>,
  stop: AbortSignal,
): Promise<ExitCode> {
  // For a file, process.stdout ignores partial writes, as to a full disk.
  const output: Writable = fstatSync(STDOUT).isFile()
    ? createWriteStream('', { fd: STDOUT, autoClose: false })
    : process.stdout;
  // Without a listener, an error would end the process before it rejects the write.
  output.on('error', () => undefined);
  const report = oncePerSecond();
  let lines = '';
  let count = 0;
  async function flush(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      output.write(lines, (cause) => {
        if (cause) reject(new Error(`not all plants were printed: ${reasonOf(cause)}`, { cause }));
        else resolve();
      });
    });
    stop.throwIfAborted();
    lines = '';
  }
  for await (const plant of plants) {
    lines += `{"id":${plant.id},${membersInJson(plant)}}\n`;
    count++;
    if (lines.length < CHUNK_LENGTH) continue;
    await flush();
    report(() => `exporting: ${pluralize(count, 'plant')}`);
  }
  await flush();
  return EXIT.done;
}
