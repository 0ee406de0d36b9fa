import { statSync } from 'node:fs';
import { dirname, join } from 'node:path';

import t from 'tap';

import { createFolder, syncFolder } from '../../dist/log/files.js';
import { faultyFileSystem, notingSyncs } from './support.js';

/* That what is written is durable, and a folder with it, is shown by ../crash-states/. */

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
