/**
 * Prints a line. If the reader of a pipe is slower, returns a promise to wait for before the next line:
 * until the reader has taken them, lines are kept in memory.
 */
export function printLine(line: string): Promise<void> | undefined {
  if (process.stdout.write(`${line}\n`)) return undefined;
  // Not `drain`, which never comes if the reader closes the pipe.
  return new Promise((resolve) => process.stdout.write('', () => resolve()));
}
