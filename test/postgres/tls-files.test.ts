import { execFileSync } from 'node:child_process';
import { closeSync, open, openSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { checkTlsFiles } from '../../dist/postgres/tls-files.js';

/** The number of threads for file operations. */
const THREADS = 4;

function urlWith(parameters: readonly [string, string][]): URL {
  return new URL(`postgres://client@127.0.0.1/plants?${String(new URLSearchParams(parameters))}`);
}

t.test('files for TLS that cannot be read are refused and named', async (t) => {
  const folder = t.testdir({ 'a file': 'text' });
  const file = join(folder, 'a file');
  const pipe = join(folder, 'pipe');
  execFileSync('mkfifo', [pipe]);
  await checkTlsFiles(urlWith([]), 10_000);
  for (const name of ['sslrootcert', 'sslcert', 'sslkey']) {
    const check = (...paths: readonly string[]) =>
      checkTlsFiles(urlWith(paths.map((path) => [name, path])), 10_000);
    await check(file);
    await t.rejects(check(join(folder, 'none')), /none: no such file or directory \(ENOENT\)$/);
    await t.rejects(check(pipe), /pipe: it is not a regular file$/);
    await check('none', file);
    await check('');
  }
});

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
  const url = urlWith([['sslrootcert', join(folder, 'file')]]);
  for (let times = 0; times < 3; times++)
    await t.rejects(checkTlsFiles(url, 10), /^the files for TLS could not be read in time$/);
  const calls = process.getActiveResourcesInfo().filter((name) => name === 'FSReqPromise');
  t.equal(calls.length, 1, 'the file is checked once');
  const writer = openSync(pipe, 'w');
  await Promise.all(opened);
  closeSync(writer);
  await checkTlsFiles(url, 10_000);
});
