import { lstatSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';

import t from 'tap';

import { createFolder, syncFolder, writeAll, writeFile } from '../dist/files.js';
import { openLogFile } from '../dist/log/file.js';
import { nodeSystem, type System } from '../dist/log/system.js';
import { createGate, faultyFileSystem, isPending, notingSyncs } from './log/support.js';

t.test('each folder is durable before anything is created in it', async (t) => {
  const root = t.testdir({ here: {} });
  const here = join(root, 'here');
  const { fs, synced } = notingSyncs();
  await createFolder(fs, here);
  t.strictSame(synced, [root], 'a folder that exists may not be durable yet');
  await createFolder(fs, join(here, 'a', 'b', 'c'));
  t.strictSame(synced.slice(1), [root, here, join(here, 'a'), join(here, 'a', 'b')]);
  t.ok(statSync(join(here, 'a', 'b', 'c')).isDirectory());
});

t.test('the parent of an existing folder need not be readable', async (t) => {
  const root = t.testdir({ here: {} });
  await createFolder(faultyFileSystem({ 'open 1': { fails: 'EACCES' } }), join(root, 'here'));
  const fs = faultyFileSystem({ 'open 2': { fails: 'EACCES' } });
  await t.rejects(createFolder(fs, join(root, 'here', 'new')), { code: 'EACCES' });
});

t.test('another process may create the same folder at the same time', async (t) => {
  const root = t.testdir({ here: {} });
  // The first folder that is opened is the one above `here`. The parent of the new one need not be readable.
  for (const fs of [nodeSystem, faultyFileSystem({ 'open 2': { fails: 'EACCES' } })]) {
    const path = join(root, 'here', fs === nodeSystem ? 'one' : 'two');
    await createFolder(creatingFirst(fs), path);
    t.ok(statSync(path).isDirectory());
  }
});

/** A file system on which another process creates each folder just before this one does. */
function creatingFirst(fs: System): System {
  return {
    ...fs,
    async mkdir(path) {
      mkdirSync(path);
      await fs.mkdir(path);
    },
  };
}

t.test('a folder that cannot be created rejects', async (t) => {
  const fs = faultyFileSystem({ 'mkdir 1': { fails: 'EACCES' } });
  await t.rejects(createFolder(fs, join(t.testdir(), 'a')), { code: 'EACCES' });
});

t.test('syncFolder ignores that fsync is forbidden, and rejects on any other error', async (t) => {
  const path = t.testdir();
  const denied = faultyFileSystem({ 'sync 1': { fails: 'ERR_ACCESS_DENIED' } });
  await syncFolder(denied, path);
  t.strictSame(denied.operations, ['open', 'sync', 'close']);
  t.equal(denied.openFiles, 0);
  const faults = [
    { 'open 1': { fails: 'EACCES' } },
    { 'sync 1': { fails: 'EIO' } },
    { 'close 1': { fails: 'EIO' } },
  ];
  for (const each of faults) {
    const fs = faultyFileSystem(each);
    await t.rejects(syncFolder(fs, path), { code: /EACCES|EIO/ });
    t.equal(fs.openFiles, 0);
  }
});

t.test('openLogFile creates a file with mode 0600, and keeps existing content', async (t) => {
  const path = join(t.testdir(), 'plants.jsonl');
  for (const content of ['one', 'onetwo']) {
    const file = await openLogFile(nodeSystem, path);
    await writeAll(nodeSystem, file, Buffer.from(content.slice(-3)));
    await file.close();
    t.equal(readFileSync(path, 'utf8'), content);
  }
  t.equal(statSync(path).mode & 0o777, 0o600);
});

/** What `writeAll` waits for in the end, if two writes take only a few bytes, and all operations on the file. */
const LAST_OPERATIONS = {
  'the last write': { dsyncIsDurable: true, operations: ['open', 'write', 'write', 'write'] },
  'the sync, if O_DSYNC does not reach the disk': {
    dsyncIsDurable: false,
    operations: ['open', 'write', 'write', 'write', 'sync'],
  },
};

for (const [what, { dsyncIsDurable, operations }] of Object.entries(LAST_OPERATIONS))
  t.test(`writeAll writes all bytes, and waits for ${what}`, async (t) => {
    const path = join(t.testdir(), 'plants.jsonl');
    const gate = createGate();
    const faults = {
      'write 1': { writes: 3 },
      'write 2': { writes: 1 },
      [operations.length]: { hangs: gate },
    };
    const fs = faultyFileSystem(faults, { dsyncIsDurable });
    const file = await openLogFile(fs, path);
    const written = writeAll(fs, file, Buffer.from('a long text'));
    await gate.reached;
    t.ok(await isPending(written));
    gate.open();
    await written;
    t.strictSame(fs.operations, operations);
    t.equal(readFileSync(path, 'utf8'), 'a long text');
    await file.close();
  });

t.test('writeFile creates a complete file with mode 0600, and syncs its folder', async (t) => {
  const path = join(t.testdir(), 'copy');
  const { fs, synced } = notingSyncs();
  await writeFile(fs, path, Buffer.from('a long text'));
  t.strictSame(synced, [dirname(path)]);
  t.equal(statSync(path).mode & 0o777, 0o600);
  await writeFile(fs, path, Buffer.from('text'));
  t.equal(readFileSync(path, 'utf8'), 'text', 'the old content is replaced');
  t.strictSame(readdirSync(dirname(path)), ['copy']);
});

t.test('writeFile replaces a symbolic link, and does not write through it', async (t) => {
  const folder = t.testdir({ empty: '', link: t.fixture('symlink', 'empty') });
  await writeFile(nodeSystem, join(folder, 'link'), Buffer.from('text'));
  t.equal(readFileSync(join(folder, 'empty'), 'utf8'), '');
  t.ok(lstatSync(join(folder, 'link')).isFile());
});

t.test('a file is closed if writing it fails', async (t) => {
  const fs = faultyFileSystem({ 'write 1': { fails: 'ENOSPC' } });
  await t.rejects(writeFile(fs, join(t.testdir(), 'copy'), Buffer.from('text')), {
    code: 'ENOSPC',
  });
  t.equal(fs.openFiles, 0);
});

t.test('O_DSYNC is durable on all platforms but macOS', async (t) => {
  t.equal(nodeSystem.dsyncIsDurable, process.platform !== 'darwin');
});
