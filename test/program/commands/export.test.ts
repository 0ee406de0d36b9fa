import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { encodeRecord } from '../../../dist/log/encode.js';
import { PROGRAM } from '../../../dist/program/output.js';
import {
  ENV,
  FAILED,
  expectFailedRunHere,
  INTERRUPTED,
  launch,
  launchHere,
  run,
  runHere,
  SERVER,
  STILL,
} from '../../helpers/program.js';
import { missing } from '../../helpers/needs.js';
import { stepClock } from '../../helpers/service.js';
import { injecting } from '../../helpers/strace.js';

// The clock stands still, so that no progress is reported.
stepClock(t, 0);

const PLANTS = [
  { id: -(2n ** 63n), name: 'pâquerette "\ud800\0', tag: '' },
  { id: 9_007_199_254_740_993n, name: 'Boston fern', tag: '室内' },
  { id: 0n, name: '' },
];
const LOG = PLANTS.map(encodeRecord).join('');
const EXPORTED = LOG.replace(/,"crc32":\d+/g, '');

t.test('export prints plants in order, and import makes the same log from them', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': LOG, 'given.jsonl': LOG });
  for (const args of [['export'], ['export', 'given.jsonl']]) {
    const { code, stdout, stderr } = await runHere(t, { args, cwd });
    t.strictSame({ code, stdout, stderr }, { code: 0, stdout: EXPORTED, stderr: '' });
  }
  writeFileSync(join(cwd, 'exported.jsonl'), EXPORTED);
  const env = { ...ENV, PLANT_STORE_FILE: 'other.jsonl' };
  await runHere(t, { args: ['import', 'exported.jsonl'], cwd, env });
  t.equal(readFileSync(join(cwd, 'other.jsonl'), 'utf8'), LOG);
});

t.test('an export of a file that is no log fails', async (t) => {
  for (const content of ['some text', 'id,name\n7,fern\n', '[]\n']) {
    const cwd = t.testdir({ other: content });
    const fault = `${join(cwd, 'other')}: it is not a log of plants; nothing was changed`;
    await expectFailedRunHere(t, FAILED, [fault], { args: ['export', 'other'], cwd });
  }
});

t.test('an export that cannot read all plants fails', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': `${LOG}x\n` });
  const path = join(cwd, 'plants.jsonl');
  const { code, stderr } = await runHere(t, { args: ['export'], cwd });
  t.equal(code, FAILED);
  t.match(stderr, `plant-store: ${path}: line 4, at byte ${Buffer.byteLength(LOG)}: `);
  t.match(stderr, `"${PROGRAM} repair ${path}"`);
  const database = { PLANT_STORE_DATABASE_URL: 'postgres://plants@127.0.0.1:1/plants' };
  const away = 'PLANT_STORE_DATABASE_URL: 127.0.0.1:1/plants: connect ECONNREFUSED 127.0.0.1:1';
  await expectFailedRunHere(t, FAILED, [away], { args: ['export'], env: database });
});

/** A log whose export is larger than what a pipe holds. */
const MANY = Array.from({ length: 1_000 }, (_, id) =>
  encodeRecord({ id: BigInt(id), name: 'a fern, '.repeat(100) }),
).join('');

t.test('an export shows its progress, and fails if it is interrupted', async (t) => {
  stepClock(t, 1_000);
  const cwd = t.testdir({ 'plants.jsonl': MANY });
  for (const signal of ['SIGTERM', 'SIGHUP'] as const) {
    const program = launchHere(t, { args: ['export'], cwd });
    await program.says('stderr', /^(?:plant-store: exporting: \d+ plants\n){2}/);
    program.send(signal);
    t.equal((await program.ended).code, INTERRUPTED, signal);
    t.ok(program.stdout.length < MANY.length / 2, signal);
  }
});

t.test('an export whose pipe is closed fails', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': MANY });
  const program = launch(t, { args: ['export'], cwd, env: ENV, preload: STILL });
  program.leave('stdout');
  t.strictSame(await program.ended, { code: FAILED, signal: null });
  t.equal(program.stderr, 'plant-store: not all plants were printed: broken pipe (EPIPE)\n');
});

t.test('an export to a file is complete, or fails', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': MANY });
  const exported = MANY.replace(/,"crc32":\d+/g, '');
  const exportWith = (limit: string) => {
    const script = `ulimit -f ${limit}; exec "$0" "$1" export > exported.jsonl`;
    const command = ['sh', '-c', script, process.execPath, SERVER];
    return run(t, { cwd, env: ENV, preload: STILL, command });
  };
  // With this limit, in blocks of 512 bytes, the last write writes only a part of its bytes.
  const blocks = Math.floor((exported.length - 1) / 512);
  const limited = await exportWith(`${blocks}`);
  t.equal(limited.code, FAILED);
  t.match(limited.stderr, /: not all plants were printed: file too large \(EFBIG\)\n$/);
  t.equal(statSync(join(cwd, 'exported.jsonl')).size, blocks * 512);
  t.equal((await exportWith('unlimited')).code, 0);
  const content = readFileSync(join(cwd, 'exported.jsonl'), 'utf8');
  t.ok(content === exported, 'all plants are in the file');
});

t.test('an export fails if its file cannot be closed', { skip: missing('strace') }, async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': LOG, 'exported.jsonl': '' });
  const calls = { paths: [join(cwd, 'exported.jsonl')], names: 'close' };
  const script = 'exec "$@" > exported.jsonl';
  // The shell closes a descriptor of the file before the program does.
  const tracer = injecting(calls, 'close:error=ENOSPC:when=1+');
  const command = ['sh', '-c', script, 'sh', ...tracer, process.execPath, SERVER, 'export'];
  const { code, stderr } = await run(t, { cwd, env: ENV, command });
  t.match({ code, stderr }, { code: FAILED, stderr: /not all plants were printed: no space left/ });
});
