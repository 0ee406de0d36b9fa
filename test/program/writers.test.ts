import { closeSync, openSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { writersOf } from '../../dist/program/writers.js';
import { launch } from '../system/program.js';

t.test('the processes that have a file open for writing are found, and no readers', async (t) => {
  const cwd = t.testdir({ file: 'text', another: '' });
  symlinkSync('file', join(cwd, 'link'));
  const opened = (how: string) => {
    const command = ['sh', '-c', `exec 3${how}; echo open; exec sleep 1000`];
    return launch(t, { cwd, command });
  };
  const writers = [opened('>>file'), opened('<>file 4>>file')];
  for (const each of [...writers, opened('<file'), opened('>>another')])
    await each.says('stdout', /open/);
  // This process does not count.
  const own = openSync(join(cwd, 'file'), 'a');
  t.teardown(() => closeSync(own));
  const ids = writers.map(({ pid }) => pid).toSorted((a, b) => a - b);
  t.strictSame(await writersOf(join(cwd, 'file')), ids);
  t.strictSame(await writersOf(join(cwd, 'link')), ids);
  t.strictSame(await writersOf(join(cwd, 'missing')), [], 'no process has a missing file open');
});
