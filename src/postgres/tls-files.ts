import { nodeFileSystem, openToRead, statRegularFile } from '../files.js';
import { reasonOf } from '../system-error.js';
import { inTime } from './in-time.js';

/** The parameters of a URL that name files. */
const PARAMETERS = ['sslrootcert', 'sslcert', 'sslkey'];

/** By path, the checks in progress. So a file that hangs takes one thread, however often it is checked. */
const running = new Map<string, Promise<void>>();

/**
 * Checks that the files which a URL names for TLS can be read. pg reads them synchronously for each connection: on
 * a file system that hangs, that would block the process.
 *
 * @throws Error if one of them cannot be read within `timeoutMs`, or is not a regular file.
 */
export async function checkTlsFiles(url: URL, timeoutMs: number): Promise<void> {
  const paths = PARAMETERS.flatMap((name) => {
    // As pg does, takes the last one, and ignores an empty one.
    const path = url.searchParams.getAll(name).at(-1);
    return path ? [path] : [];
  });
  if (paths.length === 0) return;
  await inTime(checkAll(paths), timeoutMs, 'the files for TLS could not be read in time');
}

async function checkAll(paths: readonly string[]): Promise<void> {
  for (const path of paths) {
    const check = running.get(path) ?? checkFile(path).finally(() => running.delete(path));
    running.set(path, check);
    await check;
  }
}

async function checkFile(path: string): Promise<void> {
  try {
    const file = await openToRead(nodeFileSystem, path);
    try {
      await statRegularFile(file);
      await file.read(Buffer.alloc(1), 0, 1, 0);
    } finally {
      await file.close();
    }
  } catch (cause) {
    throw new Error(`${path}: ${reasonOf(cause)}`, { cause });
  }
}
