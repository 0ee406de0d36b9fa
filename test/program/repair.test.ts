import { appendFileSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { encodeRecord } from '../../dist/log/record.js';
import { nameOfKept } from '../log/support.js';
import { DONE, ENV, FAILED, failsToRun, run, start, STILL } from '../system/program.js';

const [FERN, IVY, OAK] = ['fern', 'ivy', 'oak'].map((name, id) =>
  encodeRecord({ id: BigInt(id), name }),
) as [string, string, string];

t.test('after repair, damaged lines are beside the log, and the log serves', async (t) => {
  const damaged = ['\n', IVY.replace('ivy', 'ivi')];
  const content = [FERN, damaged[0], IVY, damaged[1], OAK, '{"id":4,'].join('');
  const cwd = t.testdir({ 'plants.jsonl': content });
  const path = join(cwd, 'plants.jsonl');
  const damagedPath = join(cwd, nameOfKept('damaged', damaged.join('')));

  const { code, stdout, stderr } = await run(t, {
    args: ['repair'],
    cwd,
    env: ENV,
    preload: STILL,
  });
  const sentence = [
    `${path}: kept 3 plants, moved 2 damaged lines to ${damagedPath}`,
    'plants of moved lines that were acknowledged come back with import, from a backup',
    '',
  ].join('\n');
  t.strictSame({ code, stdout, stderr }, { code: 0, stdout: sentence, stderr: '' });
  t.equal(readFileSync(damagedPath, 'utf8'), damaged.join(''));
  t.equal(readFileSync(path, 'utf8'), [FERN, IVY, OAK, '{"id":4,'].join(''));

  const program = await start(t, { cwd, env: ENV });
  t.equal(program.plants, 3);
  t.equal(readFileSync(path, 'utf8'), [FERN, IVY, OAK].join(''));
});

t.test('plants that a repair has moved come back from a backup', async (t) => {
  const content = [FERN, IVY.replace('ivy', 'ivi'), OAK].join('').replaceAll('\n', '\r\n');
  const cwd = t.testdir({ 'plants.jsonl': content, 'backup.jsonl': FERN + IVY });
  const repaired = await run(t, { args: ['repair'], cwd, env: ENV, preload: STILL });
  t.match(repaired, {
    code: 0,
    stdout: /: kept 2 plants, wrote 2 lines again, moved 1 damaged line/,
  });
  t.equal(readFileSync(join(cwd, 'plants.jsonl'), 'utf8'), FERN + OAK);
  const imported = await run(t, { args: ['import', 'backup.jsonl'], cwd, env: ENV });
  t.match(imported, { code: 0, stdout: /: 1 plant imported, 1 unchanged, 0 lines refused$/m });
  t.equal(readFileSync(join(cwd, 'plants.jsonl'), 'utf8'), FERN + OAK + IVY);
});

t.test('a file that is no log is not changed, and named as that', async (t) => {
  const content = '{"host":"127.0.0.1","port":8080}';
  const cwd = t.testdir({ 'settings.json': content });
  const env = { ...ENV, PLANT_STORE_FILE: 'settings.json' };
  const sentence = `PLANT_STORE_FILE: ${cwd}/settings.json: it is not a log of plants; nothing was changed`;
  for (const args of [[], ['repair']]) await failsToRun(t, FAILED, [sentence], { cwd, env, args });
  const verified = await run(t, { args: ['verify'], cwd, env });
  t.match(verified, { code: FAILED, stdout: /^no line is a record: it is not a log of plants$/m });
  t.equal(readFileSync(join(cwd, 'settings.json'), 'utf8'), content);
  t.strictSame(readdirSync(cwd), ['settings.json']);
});

t.test('repair changes nothing in a log without damage, and says so', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': FERN });
  const { code, stdout, stderr } = await run(t, {
    args: ['repair'],
    cwd,
    env: ENV,
    preload: STILL,
  });
  const sentence = `${cwd}/plants.jsonl: no line is damaged; nothing was changed\n`;
  t.strictSame({ code, stdout, stderr }, { code: 0, stdout: sentence, stderr: '' });
  t.strictSame(readdirSync(cwd), ['plants.jsonl']);
  t.equal(readFileSync(join(cwd, 'plants.jsonl'), 'utf8'), FERN);
});

t.test('repair refuses a log that a server has open, until it is closed', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': FERN });
  const program = await start(t, { cwd, env: ENV });
  appendFileSync(program.log, 'x\n');
  const reason = `a process has the log open ("fuser ${program.log}" shows which one); one log serves one process, PostgreSQL serves several`;
  const sentences = [`${program.log}: ${reason}`];
  const configured = { args: ['repair'], cwd, env: ENV, preload: STILL };
  for (const options of [configured, { args: ['repair', program.log] }])
    await failsToRun(t, FAILED, sentences, options);
  t.equal(readFileSync(program.log, 'utf8'), `${FERN}x\n`);
  t.strictSame(await program.stop('SIGTERM'), DONE);
  t.match(await run(t, configured), { code: 0 });
  t.equal(readFileSync(program.log, 'utf8'), FERN);
});
