import { failures } from '../../http/failures.js';
import { parseLine } from '../../log/record.js';
import { newPlantIn } from '../../plant-json.js';
import { pluralize } from '../../report.js';
import { PlantStoreError, type PlantStore } from '../../store.js';
import { reasonOf } from '../../system-error.js';
import { EXIT, type ExitCode } from '../exit.js';
import { readLines, type Line } from './import-lines.js';
import { openStore, type OpenedStore } from '../open-store.js';
import { createProgressPrinter, printLine } from '../output.js';
import { readStoreSettings } from '../settings/read.js';

/**
 * The command `import`: adds the plants in a file to the configured store.
 *
 * @throws Error as {@link addPlants} does, or if the store cannot be opened.
 */
export async function importPlants(file: string, stop: AbortSignal): Promise<ExitCode> {
  const settings = await readStoreSettings(process.env);
  async function open(): Promise<OpenedStore> {
    const opened = await openStore(settings, 'fail', stop);
    console.log(opened.place);
    return opened;
  }
  return addPlants(file, open, stop);
}

/** The store that plants are added to. */
type Target = Pick<OpenedStore, 'log'> & { readonly store: PlantStore };

/**
 * Adds the plants in a file to a store. Each line is a plant as `POST /plants` takes it, or a
 * record of a log, whose `crc32` must match.
 *
 * For each refused line, prints its number, and why `POST /plants` would refuse the plant. At the
 * end, prints how many lines were refused. The store is opened only once the file turns out to hold
 * JSON lines. An import can be repeated: a plant that the store already has stays unchanged.
 *
 * @throws Error if the file cannot be read or does not hold JSON lines; the first error of the
 * store that is not about a plant.
 */
export async function addPlants(
  file: string,
  open: () => Promise<Target>,
  stop: AbortSignal,
): Promise<ExitCode> {
  const counts = { created: 0, unchanged: 0, refused: 0 };
  const printProgress = createProgressPrinter();
  let target: Target | undefined;
  try {
    for await (const lines of readLines(file, stop)) {
      if (lines.length === 0) continue;
      const { store } = (target ??= await open());
      const outcomes = await Promise.allSettled(lines.map((line) => addLine(store, line)));
      let failure: Error | undefined;
      for (const outcome of outcomes) {
        if (outcome.status === 'rejected') failure ??= outcome.reason as Error;
        else if (typeof outcome.value === 'string') counts[outcome.value]++;
        else {
          counts.refused++;
          await printLine(outcome.value.refusal);
        }
      }
      if (failure) throw new Error(`${file}: ${failure.message}`, { cause: failure });
      printProgress(
        () => `importing ${file}: ${pluralize(counts.created + counts.unchanged, 'plant')}`,
      );
    }
    // If all lines are blank, no plant has needed the store. A store that cannot be opened is an
    // error all the same.
    target ??= await open();
  } finally {
    const { created, unchanged, refused } = counts;
    if (target)
      console.log(
        `${file}: ${pluralize(created, 'plant')} imported, ${unchanged} unchanged, ` +
          `${pluralize(refused, 'line')} refused`,
      );
    await target?.store.close();
  }
  // `close` notices if the log was modified during the import: then it may lack these plants.
  target.log?.poisoned.throwIfAborted();
  return counts.refused === 0 ? EXIT.done : EXIT.failed;
}

/**
 * Adds the plant in a line. Resolves to what `add` resolves to, or to why the line is refused.
 *
 * @throws Error with the number of the line if the store fails for another reason.
 */
async function addLine(
  store: PlantStore,
  { number, bytes }: Line,
): Promise<'created' | 'unchanged' | { readonly refusal: string }> {
  // Where there is a plant, `damage` is only about the layout of the line, or a missing checksum.
  const { plant, damage } = parseLine(bytes, newPlantIn);
  if (!plant) return { refusal: `line ${number}: ${damage}` };
  try {
    return await store.add(plant);
  } catch (cause) {
    const reason = refusalFor(cause);
    if (reason !== undefined) return { refusal: `line ${number}: ${reason}` };
    throw new Error(`line ${number}: ${reasonOf(cause)}`, { cause });
  }
}

/** Why a line is refused; `undefined` for an error that is not about the line. */
function refusalFor(error: unknown): string | undefined {
  // A RangeError: the plant is too large for the store.
  if (error instanceof RangeError) return error.message;
  return error instanceof PlantStoreError && error.code === 'conflict'
    ? failures.conflict.message
    : undefined;
}
