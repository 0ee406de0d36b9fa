import { appendFileSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { encodeRecord } from '../../dist/log/record.js';
import {
  ENV,
  FAILED,
  failsHere,
  INTERRUPTED,
  launch,
  run,
  runHere,
  SERVER,
  startHere,
  STILL,
} from '../system/program.js';
import { stepClock } from '../service.js';

// No progress is reported.
stepClock(t, 0);

const PLANTS = [
  { id: -(2n ** 63n), name: 'pâquerette "\ud800\0', tag: '' },
  { id: 9_007_199_254_740_993n, name: 'Boston fern', tag: '室内' },
  { id: 0n, name: '' },
];
const LOG = PLANTS.map(encodeRecord).join('');
const EXPORTED = LOG.replace(/,"crc32":\d+/g, '');

t.test('export prints plants in order, and import makes the same log of them', async (t) => {
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

t.test('a log that a server has open is exported up to its last whole line', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': LOG });
  const program = await startHere(t, { cwd });
  appendFileSync(program.log, '{"id":8,"na');
  t.match(await runHere(t, { args: ['export'], cwd }), { code: 0, stdout: EXPORTED });
});

t.test('an export that cannot read all plants fails', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': `${LOG}x\n` });
  const path = join(cwd, 'plants.jsonl');
  const { code, stderr } = await runHere(t, { args: ['export'], cwd });
  t.equal(code, FAILED);
  t.match(stderr, `plant-store: ${path}: line 4, at byte ${Buffer.byteLength(LOG)}: `);
  t.match(stderr, `"plant-store repair ${path}"`);
  const missing = `${cwd}/none: no such file or directory (ENOENT)`;
  await failsHere(t, FAILED, [missing], { args: ['export', 'none'], cwd });
  const database = {
    PLANT_STORE_DATABASE_URL: 'postgres://plants@127.0.0.1:1/plants',
    PLANT_STORE_TOKEN: 'a',
  };
  const away = 'PLANT_STORE_DATABASE_URL: 127.0.0.1:1/plants: connect ECONNREFUSED 127.0.0.1:1';
  await failsHere(t, FAILED, [away], { args: ['export'], env: database });
});

/** A log whose export is larger than what a pipe holds. */
const MANY = Array.from({ length: 5_000 }, (_, id) =>
  encodeRecord({ id: BigInt(id), name: 'a fern, '.repeat(30) }),
).join('');

t.test('an export that is interrupted, or whose pipe is closed, fails', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': MANY });
  const options = { args: ['export'], cwd, env: ENV, preload: STILL };
  const closed = launch(t, options);
  closed.leave('stdout');
  t.strictSame(await closed.ended, { code: FAILED, signal: null });
  t.equal(closed.stderr, 'plant-store: not all plants were printed: broken pipe (EPIPE)\n');
  // Once something is printed, the signal is handled before the next chunk is.
  const preload = `const { write } = process.stdout;
    process.stdout.write = function (chunk, ...rest) {
      if (chunk) process.emit('SIGTERM');
      return write.call(this, chunk, ...rest);
    };`;
  const interrupted = await run(t, { ...options, preload: STILL + preload });
  t.equal(interrupted.code, INTERRUPTED);
  t.ok(interrupted.stdout.length < MANY.length / 2);
});

t.test('an export into a file is whole, or fails', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': MANY });
  const exported = MANY.replace(/,"crc32":\d+/g, '');
  const exportTo = (target: string, before = 'true') =>
    run(t, {
      cwd,
      env: ENV,
      preload: STILL,
      command: [
        'sh',
        '-c',
        `${before}; exec "$0" "$1" export > ${target}`,
        process.execPath,
        SERVER,
      ],
    });
  const full = await exportTo('/dev/full');
  t.equal(full.code, FAILED);
  t.match(full.stderr, /: not all plants were printed: no space left on device \(ENOSPC\)\n$/);
  // The last write takes a part of its bytes. The limit is in blocks of 512 bytes.
  const blocks = Math.floor((exported.length - 1) / 512);
  const limited = await exportTo('exported.jsonl', `ulimit -f ${blocks}`);
  t.equal(limited.code, FAILED);
  t.match(limited.stderr, /: not all plants were printed: file too large \(EFBIG\)\n$/);
  t.equal(statSync(join(cwd, 'exported.jsonl')).size, blocks * 512);
  t.equal((await exportTo('exported.jsonl')).code, 0);
  t.ok(
    readFileSync(join(cwd, 'exported.jsonl'), 'utf8') === exported,
    'all plants are in the file',
  );
});

t.test('an export reports its progress', async (t) => {
  stepClock(t, 1_000);
  const cwd = t.testdir({ 'plants.jsonl': MANY });
  const { stderr } = await runHere(t, { args: ['export'], cwd });
  t.match(stderr, /^(?:plant-store: exporting: \d+ plants\n){10,}$/);
});
