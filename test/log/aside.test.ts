import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';

import t, { type Test } from 'tap';

import { unusedPath } from '../../dist/log/aside.js';
import { nodeSystem } from '../../dist/log/files.js';
import { faultyFileSystem, memoryFile, shortFolder } from './support.js';

const MEBIBYTE = 2 ** 20;
/** The kept bytes are those of two ranges. */
const LOG = memoryFile(Buffer.from(`0123456789${'x'.repeat(MEBIBYTE)}`));
const RANGES = [
  { start: 2, end: 4 },
  { start: 8, end: 10 },
];
const KEPT = '2389';

function nameIn(folder: string, ranges = RANGES): Promise<string> {
  return unusedPath(nodeSystem, join(folder, 'kept'), LOG, ranges);
}

/** A test of the name that is chosen beside other files. */
function checkName(t: Test, files: Record<string, string>, name: string, ranges = RANGES) {
  const folder = t.testdir(files);
  return t.resolveMatch(nameIn(folder, ranges), join(folder, name), JSON.stringify(files));
}

t.test('a file that was kept earlier is not replaced', async (t) => {
  await checkName(t, {}, 'kept');
  await checkName(t, { kept: '2380' }, 'kept-2');
  await checkName(t, { kept: '389' }, 'kept-2');
  await checkName(t, { kept: `${KEPT}\n` }, 'kept-2');
  await checkName(t, { kept: '\0\0\0\0' }, 'kept-2');
  await checkName(t, { kept: 'x', 'kept-2': 'y', 'kept-4': 'z' }, 'kept-3');
});

t.test('a complete or interrupted copy of the same bytes is replaced', async (t) => {
  for (const copied of [KEPT, '238', '2', ''])
    await checkName(t, { kept: 'x', 'kept-2': copied }, 'kept-2');
});

t.test('every byte of a large file is compared', async (t) => {
  const ranges = [{ start: 9, end: 10 + MEBIBYTE }];
  const same = `9${'x'.repeat(MEBIBYTE)}`;
  await checkName(t, { kept: same }, 'kept', ranges);
  await checkName(t, { kept: same.slice(0, MEBIBYTE) }, 'kept', ranges);
  await checkName(t, { kept: `${same.slice(0, MEBIBYTE)}y` }, 'kept-2', ranges);
  await checkName(t, { kept: `${same.slice(0, MEBIBYTE - 1)}y` }, 'kept-2', ranges);
});

t.test('neither a folder nor a link to another file is replaced', async (t) => {
  const folder = t.testdir({ other: 'not kept' });
  mkdirSync(join(folder, 'kept'));
  symlinkSync('other', join(folder, 'kept-2'));
  t.equal(await nameIn(folder), join(folder, 'kept-3'));
  t.equal(readFileSync(join(folder, 'other'), 'utf8'), 'not kept');
});

t.test('a file that must not be read is not replaced', async (t) => {
  const folder = shortFolder(t);
  writeFileSync(join(folder, 'kept'), KEPT);
  chmodSync(join(folder, 'kept'), 0);
  const isRoot = process.geteuid?.() === 0;
  if (isRoot) process.seteuid?.('nobody');
  try {
    t.equal(await nameIn(folder), join(folder, 'kept-2'));
  } finally {
    if (isRoot) process.seteuid?.('root');
  }
});

t.test('no name is chosen if a file cannot be compared', async (t) => {
  for (const kind of ['open', 'stat', 'read', 'close']) {
    const folder = t.testdir({ kept: KEPT });
    const fs = faultyFileSystem({ [`${kind} 1`]: { fails: 'EIO' } });
    const choosing = unusedPath(fs, join(folder, 'kept'), LOG, RANGES);
    await t.rejects(choosing, { code: 'EIO' }, kind);
    t.equal(fs.openFiles, 0, 'the file is closed');
    t.strictSame(readdirSync(folder), ['kept']);
  }
});
