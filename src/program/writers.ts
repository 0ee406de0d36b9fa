import { lstat, readdir, readlink, realpath } from 'node:fs/promises';

/** The bit of a mode that is set if a descriptor in /proc is open for writing. */
const WRITABLE = 0o200;

/**
 * Resolves to the ids of the other processes that have a file open for writing, as far as this process can
 * see them: those of the same user on Linux, or all of them for root. If the file does not exist, no process
 * is found.
 */
export async function writersOf(path: string): Promise<readonly number[]> {
  const target = await realpath(path).catch(() => undefined);
  const names = await readdir('/proc').catch(() => []);
  const ids = names.map(Number).filter((id) => id > 0 && id !== process.pid);
  return matching(ids, async (id) => {
    const folder = `/proc/${id}/fd`;
    const open = await matching(await readdir(folder), async (name) => {
      const descriptor = `${folder}/${name}`;
      if ((await readlink(descriptor)) !== target) return false;
      return ((await lstat(descriptor)).mode & WRITABLE) !== 0;
    });
    return open.length > 0;
  });
}

/**
 * The items for which a check resolves to true. The check rejects if a process has ended or may not be
 * inspected.
 */
async function matching<Item>(
  items: readonly Item[],
  check: (item: Item) => Promise<boolean>,
): Promise<readonly Item[]> {
  const checks = await Promise.allSettled(items.map(check));
  return items.filter((_, index) => {
    const result = checks[index];
    return result?.status === 'fulfilled' && result.value;
  });
}
