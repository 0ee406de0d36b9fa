import { nodeFileSystem, openToRead, statRegularFile } from '../files.js';
import { inTime } from './in-time.js';

/** The parameters of a URL that name files. */
const PARAMETERS = ['sslrootcert', 'sslcert', 'sslkey'];

/**
 * Checks that the files which a URL names for TLS can be read. pg reads them synchronously for each connection: on
 * a file system that hangs, that would block the process.
 *
 * @throws Error if one of them cannot be read within `timeoutMs`, or is not a regular file.
 */
export async function checkTlsFiles(url: URL, timeoutMs: number): Promise<void> {
  const paths = PARAMETERS.flatMap((name) => url.searchParams.getAll(name));
  if (paths.length === 0) return;
  const checks = Promise.all(paths.map(checkFile));
  await inTime(checks, timeoutMs, 'the files for TLS could not be read in time');
}

async function checkFile(path: string): Promise<void> {
  const file = await openToRead(nodeFileSystem, path);
  try {
    await statRegularFile(file);
    await file.read(Buffer.alloc(1), 0, 1, 0);
  } finally {
    await file.close();
  }
}
