import { appendFileSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { encodeRecord } from '../../dist/log/record.js';
import { nameOfKept } from '../log/support.js';
import { DONE, ENV, FAILED, failsToRun, run, start } from '../system/program.js';

const [FERN, IVY, OAK] = ['fern', 'ivy', 'oak'].map((name, id) =>
  encodeRecord({ id: BigInt(id), name }),
) as [string, string, string];

t.test('repair moves damaged lines to a file beside the log, which then serves', async (t) => {
  const damaged = ['\n', IVY.replace('ivy', 'ivi')];
  const content = [FERN, damaged[0], IVY, damaged[1], OAK, '{"id":4,'].join('');
  const cwd = t.testdir({ 'plants.jsonl': content });
  const path = join(cwd, 'plants.jsonl');
  const damagedPath = join(cwd, nameOfKept('damaged', damaged.join('')));

  const { code, stdout, stderr } = await run(t, { args: ['repair'], cwd, env: ENV });
  const sentence = `${path}: kept 3 plants, moved 2 damaged lines to ${damagedPath}\n`;
  t.strictSame({ code, stdout, stderr }, { code: 0, stdout: sentence, stderr: '' });
  t.equal(readFileSync(damagedPath, 'utf8'), damaged.join(''));
  t.equal(readFileSync(path, 'utf8'), [FERN, IVY, OAK, '{"id":4,'].join(''));

  const program = await start(t, { cwd, env: ENV });
  t.equal(program.plants, 3);
  t.equal(readFileSync(path, 'utf8'), [FERN, IVY, OAK].join(''));
});

t.test('repair changes nothing in a log without damage, and says so', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': FERN });
  const { code, stdout, stderr } = await run(t, { args: ['repair'], cwd, env: ENV });
  const sentence = `${cwd}/plants.jsonl: no line is damaged; nothing was changed\n`;
  t.strictSame({ code, stdout, stderr }, { code: 0, stdout: sentence, stderr: '' });
  t.strictSame(readdirSync(cwd), ['plants.jsonl']);
  t.equal(readFileSync(join(cwd, 'plants.jsonl'), 'utf8'), FERN);
});

t.test('repair refuses a log that a server has open, until it is closed', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': FERN });
  const program = await start(t, { cwd, env: ENV });
  appendFileSync(program.log, 'x\n');
  const reason =
    'another process has the log open; one log serves one process, plant-store/postgres serves several';
  const sentences = [`${program.log}: ${reason}`, `process ${program.pid} has the log open`];
  const configured = { args: ['repair'], cwd, env: ENV };
  for (const options of [configured, { args: ['repair', program.log] }])
    await failsToRun(t, FAILED, sentences, options);
  t.equal(readFileSync(program.log, 'utf8'), `${FERN}x\n`);
  t.strictSame(await program.stop('SIGTERM'), DONE);
  t.match(await run(t, configured), { code: 0 });
  t.equal(readFileSync(program.log, 'utf8'), FERN);
});
