import { execFileSync } from 'node:child_process';
import { closeSync, open, openSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { checkTlsFiles } from '../../dist/postgres/tls-files.js';

/** The number of threads for file operations. */
const THREADS = 4;

function urlWith(parameters: Readonly<Record<string, string>>): URL {
  return new URL(`postgres://client@127.0.0.1/plants?${String(new URLSearchParams(parameters))}`);
}

t.test(
  'files for TLS that cannot be read are refused, whichever parameter names them',
  async (t) => {
    const folder = t.testdir({ 'a file': 'text' });
    const file = join(folder, 'a file');
    const pipe = join(folder, 'pipe');
    execFileSync('mkfifo', [pipe]);
    await checkTlsFiles(urlWith({}), 10_000);
    for (const name of ['sslrootcert', 'sslcert', 'sslkey']) {
      await checkTlsFiles(urlWith({ [name]: file }), 10_000);
      const refused = (path: string) => checkTlsFiles(urlWith({ [name]: path }), 10_000);
      await t.rejects(refused(join(folder, 'none')), /ENOENT/);
      await t.rejects(refused(pipe), /it is not a regular file/);
    }
  },
);

t.test('files for TLS on a file system that hangs do not block the process', async (t) => {
  const folder = t.testdir({ file: 'text' });
  const pipe = join(folder, 'pipe');
  execFileSync('mkfifo', [pipe]);
  // Opening a FIFO blocks until it has a writer.
  const opened = Array.from(
    { length: THREADS },
    () =>
      new Promise<void>((resolve) =>
        open(pipe, 'r', (_error, descriptor) => {
          closeSync(descriptor);
          resolve();
        }),
      ),
  );
  const url = urlWith({ sslrootcert: join(folder, 'file') });
  await t.rejects(checkTlsFiles(url, 10), /the files for TLS could not be read in time/);
  const writer = openSync(pipe, 'w');
  await Promise.all(opened);
  closeSync(writer);
  await checkTlsFiles(url, 10_000);
});
