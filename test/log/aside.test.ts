import { readdirSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { basename, join } from 'node:path';

import t from 'tap';

import { nodeSystem, type System } from '../../dist/log/files.js';
import { keepAside } from '../../dist/log/recover.js';
import { contentOf, faultyFileSystem, ignore, nameOfKept, notingSyncs } from './support.js';

const CHUNKS = ['23', '89'].map((each) => Buffer.from(each));
const KEPT = '2389';
const NAME = nameOfKept('torn', KEPT);

function keep(folder: string, fs: System = nodeSystem, chunks = CHUNKS): Promise<string> {
  return keepAside(fs, join(folder, 'plants.jsonl'), 'torn', chunks);
}

t.test('what is moved aside is named after its content', async (t) => {
  const folder = t.testdir();
  const { fs, synced } = notingSyncs();
  t.equal(await keep(folder, fs), join(folder, NAME));
  t.strictSame(contentOf(folder), { [NAME]: KEPT });
  t.equal(statSync(join(folder, NAME)).mode & 0o777, 0o600);
  t.strictSame(synced, [folder]);

  const large = `9${'x'.repeat(2 ** 20)}`;
  const path = await keep(folder, nodeSystem, [Buffer.from(large)]);
  t.equal(basename(path), nameOfKept('torn', large));
  t.equal(readFileSync(path, 'utf8'), large);
});

t.test('what is moved aside again is kept once, and replaces nothing else', async (t) => {
  const other = nameOfKept('torn', '238');
  const folder = t.testdir({
    [NAME]: KEPT,
    [other]: '238',
    'plants.jsonl.torn.new': 'interrupted',
  });
  t.equal(await keep(folder), join(folder, NAME));
  t.strictSame(contentOf(folder), { [NAME]: KEPT, [other]: '238' });
});

t.test('a folder is not replaced, and nothing is written through a link', async (t) => {
  const folder = t.testdir({ other: 'not kept', [NAME]: {} });
  symlinkSync('other', join(folder, 'plants.jsonl.torn.new'));
  await t.rejects(keep(folder), { code: /EISDIR|EEXIST/ });
  t.strictSame(readdirSync(folder).toSorted(), ['other', NAME], 'nothing is left');
  t.equal(readFileSync(join(folder, 'other'), 'utf8'), 'not kept');
});

t.test('no file is left if an operation fails', async (t) => {
  for (let nth = 2; ; nth++) {
    const folder = t.testdir();
    const fs = faultyFileSystem({ [nth]: { fails: 'EIO' } });
    const kept = await keep(folder, fs).catch(ignore);
    if (kept !== undefined) break;
    const isRenamed = fs.operations.indexOf('rename') < nth - 1 && fs.operations.includes('rename');
    t.strictSame(contentOf(folder), isRenamed ? { [NAME]: KEPT } : {}, `operation ${nth}`);
    t.equal(fs.openFiles, 0, 'all files are closed');
  }
});
