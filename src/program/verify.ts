import { nodeFileSystem } from '../log/file.js';
import { verifyLog } from '../log/repair.js';
import { counted } from '../report.js';
import { EXIT, type ExitCode } from './exit.js';
import { reportProgress } from './progress.js';

/** Checks every line of a log, and prints each damaged one. Changes nothing. */
export async function verify(path: string): Promise<ExitCode> {
  const { plants, bytes, damagedLines, tornBytes } = await verifyLog(nodeFileSystem, path, {
    onDamage: ({ line, offset, reason }) => console.log(`line ${line}, byte ${offset}: ${reason}`),
    onProgress: reportProgress(path),
  });
  const found = [counted(plants, 'plant'), counted(bytes, 'byte')];
  console.log(`${path}: ${found.join(', ')}, ${counted(damagedLines, 'damaged line')}`);
  if (tornBytes > 0)
    console.log(`after the last line, ${counted(tornBytes, 'byte')} of a write under way or torn`);
  return damagedLines === 0 ? EXIT.done : EXIT.failed;
}
