import type { NewPlant } from '../plant.js';
import { pluralize } from '../pluralize.js';
import { copyPlants } from './copy.js';
import { EXIT, type ExitCode } from './exit.js';
import { printLine } from './output.js';
import { transfer, withOpenLog } from './transfer.js';

/** The command `export`: copies the plants of a database, in the order of their ids, to a log. */
export function exportPlants(
  path: string,
  plants: AsyncIterable<NewPlant>,
  stop: AbortSignal,
): Promise<ExitCode> {
  return withOpenLog(path, stop, async (log) => {
    const stored = log.plants()[Symbol.asyncIterator]();
    const onDifferent = ({ id }: NewPlant): unknown => printLine(`plant ${id} differs`);
    const { different } = await transfer(
      `exporting ${path}`,
      stop,
      (onProgress) => copyPlants(plants, log, { onProgress, onDifferent, stored }),
      ({ created, unchanged, different }) =>
        `${path}: ${pluralize(created, 'plant')} copied, ${unchanged} unchanged, ${different} different`,
    );
    return different === 0 ? EXIT.done : EXIT.failed;
  });
}
