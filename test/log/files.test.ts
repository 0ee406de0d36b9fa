import { readdirSync, readFileSync, rmdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { createFolder, keepTorn } from '../../dist/log/files.js';
import { openLog } from '../../dist/log/log.js';
import { nodeSystem, type System } from '../../dist/log/system.js';
import { contentOf, countOf, faultyFileSystem, logAt, nameOfKept, type Faults } from './support.js';

/* ../crash-states/ shows that what is written is durable, and the folders with it. */

t.test('a parent folder must be readable only to create the folder of a log', async (t) => {
  const folder = join(t.testdir(), 'data');
  const unreadable = () => faultyFileSystem({ 'open 1': { fails: 'EACCES' } });
  await t.rejects(createFolder(unreadable(), folder), { code: 'EACCES' });
  await createFolder(unreadable(), folder);
});

t.test('a log can be opened where the permission model of Node forbids fsync', async (t) => {
  const syncs = Array.from({ length: 50 }, (_, n) => `fsync ${n + 1}`);
  const denied = syncs.map((nth) => [nth, { fails: 'ERR_ACCESS_DENIED' }]);
  const fs = faultyFileSystem(Object.fromEntries(denied) as Faults);
  const log = await openLog(fs, logAt(t));
  await log.close();
  t.ok(countOf(fs, 'fsync') > 2);
  t.equal(fs.openFiles, 0);
});

const KEPT = '2389';
const NAME = nameOfKept('torn', KEPT);

function keep(folder: string, system = nodeSystem): Promise<string> {
  return keepTorn(system, join(folder, 'plants.jsonl'), Buffer.from(KEPT));
}

t.test('bytes that are moved aside twice are kept once, and replace nothing else', async (t) => {
  const other = nameOfKept('torn', '238');
  const folder = t.testdir({
    [NAME]: KEPT,
    [other]: '238',
    'plants.jsonl.torn.new': 'interrupted',
  });
  t.equal(await keep(folder), join(folder, NAME));
  t.strictSame(contentOf(folder), { [NAME]: KEPT, [other]: '238' });
});

t.test('bytes that are moved aside replace no folder, and go through no link', async (t) => {
  const folder = t.testdir({ other: 'not kept', [NAME]: {} });
  symlinkSync('other', join(folder, 'plants.jsonl.torn.new'));
  await t.rejects(keep(folder), { code: /EISDIR|EEXIST/ });
  t.strictSame(readdirSync(folder).toSorted(), ['other', NAME], 'nothing is left');

  // Another process creates the link again and again.
  const unlink: System['unlink'] = async (path) => {
    await nodeSystem.unlink(path).catch(() => undefined);
    symlinkSync('other', path);
  };
  rmdirSync(join(folder, NAME));
  await t.rejects(keep(folder, { ...nodeSystem, unlink }), { code: 'EEXIST' });
  t.equal(readFileSync(join(folder, 'other'), 'utf8'), 'not kept');
});
