import { readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';

import t from 'tap';

import {
  createFolder,
  syncFolder,
  writeAll,
  openLogFile,
  nodeSystem,
} from '../../dist/log/files.js';
import { createGate, faultyFileSystem, isPending, notingSyncs } from './support.js';

t.test('a folder is created with its ancestors, and all of them are durable', async (t) => {
  const root = t.testdir();
  const { fs, synced } = notingSyncs();
  await createFolder(fs, join(root, 'a', 'b'));
  t.ok(statSync(join(root, 'a', 'b')).isDirectory());
  t.strictSame(synced.slice(0, 3), [join(root, 'a'), root, dirname(root)]);
  t.equal(synced.at(-1), '/');
  const first = [...synced];
  await createFolder(fs, join(root, 'a', 'b'));
  t.strictSame(synced, [...first, ...first], 'folders that exist may not be durable yet');
});

t.test('the folders above those that are created need not be readable', async (t) => {
  const root = t.testdir({ here: {} });
  await createFolder(faultyFileSystem({ 'open 1': { fails: 'EACCES' } }), join(root, 'here'));
  await createFolder(faultyFileSystem({ 'open 2': { fails: 'EACCES' } }), join(root, 'new'));
  const fs = faultyFileSystem({ 'open 1': { fails: 'EACCES' } });
  await t.rejects(createFolder(fs, join(root, 'here', 'new')), { code: 'EACCES' });
});

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

t.test('O_DSYNC is durable on all platforms but macOS', async (t) => {
  t.equal(nodeSystem.dsyncIsDurable, process.platform !== 'darwin');
});
