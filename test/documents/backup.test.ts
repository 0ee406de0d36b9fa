/* The script and the command for backups. test/postgres/drills.test.ts has the other commands. */
import { spawnSync } from 'node:child_process';
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

import t, { type Test } from 'tap';

import { encodeRecord } from '../../dist/log/encode.js';
import { block } from '../helpers/documents.js';
import { FERN, IVY, MOSS } from '../helpers/plants.js';

const [fern = '', ivy = '', moss = ''] = [FERN, IVY, MOSS].map(encodeRecord);

const dist = t.fixture('symlink', resolve('dist'));

/**
 * Writes a script into a folder with these files, which takes the place of /var and /opt. Returns
 * the folder, and a function that runs the script there.
 */
function prepare(t: Test, script: string, files: Parameters<Test['testdir']>[0]) {
  const cwd = t.testdir(files);
  const here = script.replaceAll(/\/(?:var|opt)(?=\/\w)/g, cwd);
  const file = join(cwd, 'script');
  writeFileSync(file, here.startsWith('#!') ? here : `#!/bin/sh\n${here}`, { mode: 0o755 });
  return { cwd, run: () => spawnSync(file, { cwd, encoding: 'utf8' }) };
}

t.test('an import adds the plants that were stored since the backup', (t) => {
  const files = {
    dist,
    data: { 'plants.jsonl': `${fern}${ivy}` },
    'plants.replaced.jsonl': `${fern}${ivy}${moss}`,
  };
  const { cwd, run } = prepare(t, block('The newest plants', 'sh'), files);
  const { status, stdout, stderr } = run();
  t.match(stdout, '\nplants.replaced.jsonl: 1 plant imported, 2 unchanged, 0 lines refused\n');
  t.strictSame([status, stderr], [0, '']);
  t.equal(readFileSync(join(cwd, 'data/plants.jsonl'), 'utf8'), `${fern}${ivy}${moss}`);
  t.end();
});

t.test('the daily backup prints only damage, and then keeps the last copy', (t) => {
  const script = readFileSync('src/program/deploy/daily-backup.sh', 'utf8');
  const { cwd, run } = prepare(t, script, {
    backups: {},
    lib: { 'plant-store': { 'plants.jsonl': fern } },
    'plant-store': { dist },
  });
  const log = join(cwd, 'lib/plant-store/plants.jsonl');
  const copy = (): string => readFileSync(join(cwd, 'backups/plants.jsonl'), 'utf8');
  for (const more of ['', ivy]) {
    appendFileSync(log, more);
    const { status, stdout, stderr } = run();
    t.strictSame([status, stdout, stderr], [0, '', '']);
    t.equal(copy(), readFileSync(log, 'utf8'));
  }
  const last = copy();
  appendFileSync(log, `damaged\n${moss}`);
  const { status, stdout } = run();
  t.equal(status, 1);
  t.match(stdout, /^line 3, byte \d+: .*\n.*: 3 plants, .* 1 damaged line\n$/);
  t.equal(copy(), last);
  t.end();
});
