/* The commands verify and repair, and what they have in common with a start. */
import { execFileSync } from 'node:child_process';
import { appendFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { crc32 } from 'node:zlib';

import t from 'tap';

import { encodeRecord } from '../../dist/log/record.js';
import { EXIT } from '../../dist/program/exit.js';
import { nameOfKept } from '../log/support.js';
import { hastenTimers, stepClock } from '../service.js';
import {
  ENV,
  FAILED,
  failsHere,
  LARGE_LOG,
  launch,
  launchHere,
  MISUSED,
  runHere,
  startHere,
  STILL,
} from '../system/program.js';

const [FERN, IVY, OAK] = ['fern', 'ivy', 'oak'].map((name, id) =>
  encodeRecord({ id: BigInt(id), name }),
) as [string, string, string];
const DAMAGED_IVY = IVY.replace('ivy', 'ivi');
const NO_PLANT = 'body: must be one JSON text in UTF-8; it is not valid';

// No progress is reported.
stepClock(t, 0);

t.test('a log with a member of a newer version is refused, and not changed', async (t) => {
  const newer = `${IVY.slice(0, IVY.indexOf(',"crc32"'))},"colour":30`;
  const log = `${FERN}${newer},"crc32":${crc32(newer)}}\n`;
  const cwd = t.testdir({ 'plants.jsonl': log });
  t.match(await runHere(t, { cwd }), { code: FAILED, stderr: /: line 2, at byte / });
  t.equal(readFileSync(join(cwd, 'plants.jsonl'), 'utf8'), log);
});

t.test('verify prints what a log holds, and changes nothing', async (t) => {
  const examples: Record<string, readonly [content: string, code: number, ...lines: string[]]> = {
    whole: [FERN + IVY, 0, `FILE: 2 plants, ${FERN.length + IVY.length} bytes, 0 damaged lines`],
    torn: [
      `${FERN}{"id":8`,
      0,
      `FILE: 1 plant, ${FERN.length + 7} bytes, 0 damaged lines`,
      'after the last line, 7 bytes of an incomplete write',
    ],
    'without its last newline': [
      FERN.trimEnd(),
      0,
      `FILE: 1 plant, ${FERN.length - 1} bytes, 0 damaged lines`,
      'the last line has no newline; it gets one when the log is opened or repaired',
    ],
    empty: ['', 0, 'FILE: 0 plants, 0 bytes, 0 damaged lines'],
    'no log': [
      'some text',
      FAILED,
      'FILE: 0 plants, 9 bytes, 0 damaged lines',
      'after the last line, 9 bytes of an incomplete write',
      'no line is a record: it is not a log of plants',
    ],
    'damaged and torn': [
      [FERN, 'x\n', IVY, FERN, '{"id":'].join(''),
      FAILED,
      `line 2, byte ${FERN.length}: ${NO_PLANT}`,
      `line 4, byte ${FERN.length + 2 + IVY.length}: it repeats the id of the line at byte 0`,
      `FILE: 2 plants, ${2 * FERN.length + 2 + IVY.length + 6} bytes, 2 damaged lines`,
      'after the last line, 6 bytes of an incomplete write',
    ],
  };
  const cwd = t.testdir();
  const path = join(cwd, 'plants.jsonl');
  for (const [what, [content, code, ...lines]] of Object.entries(examples)) {
    writeFileSync(path, content);
    const ended = await runHere(t, { args: ['verify'], cwd });
    t.strictSame(ended.stdout.replaceAll(path, 'FILE').split('\n'), [...lines, ''], what);
    t.match(ended, { code, stderr: /^$/ }, what);
    t.equal(readFileSync(path, 'utf8'), content, what);
    t.strictSame(readdirSync(cwd), ['plants.jsonl'], what);
  }
});

t.test('repair moves damaged lines beside the log, and writes others again', async (t) => {
  type Row = readonly [content: string, kept: string, moved: string, ...said: string[]];
  const hint = 'if a moved line held an acknowledged plant, import it from a backup';
  const examples: Record<string, Row> = {
    'damaged lines, and a torn one': [
      [FERN, '\n', IVY, DAMAGED_IVY, OAK, '{"id":4,'].join(''),
      FERN + IVY + OAK,
      `\n${DAMAGED_IVY}{"id":4,`,
      'FILE: kept 3 plants, moved 2 damaged lines and 8 bytes of an incomplete write to MOVED',
      hint,
    ],
    'saved with CR LF': [
      [FERN, DAMAGED_IVY, OAK].join('').replaceAll('\n', '\r\n'),
      FERN + OAK,
      DAMAGED_IVY.replace('\n', '\r\n'),
      'FILE: kept 2 plants, wrote 2 lines again, moved 1 damaged line to MOVED',
      hint,
    ],
    'no damage': [FERN, FERN, '', 'FILE: no line is damaged; nothing was changed'],
  };
  for (const [what, [content, kept, moved, ...said]] of Object.entries(examples)) {
    const cwd = t.testdir({ 'plants.jsonl': content });
    const path = join(cwd, 'plants.jsonl');
    const movedTo = nameOfKept('damaged', moved);
    const { code, stdout, stderr } = await runHere(t, { args: ['repair'], cwd });
    t.strictSame({ code, stderr }, { code: 0, stderr: '' }, what);
    const named = stdout.replace(join(cwd, movedTo), 'MOVED').replace(path, 'FILE');
    t.strictSame(named.split('\n'), [...said, ''], what);
    const left = readdirSync(cwd).map((name) => [name, readFileSync(join(cwd, name), 'utf8')]);
    const files = { 'plants.jsonl': kept, ...(moved && { [movedTo]: moved }) };
    t.strictSame(Object.fromEntries(left), files, what);
  }
});

t.test('a log that a server has open can be verified, not repaired or served', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': FERN });
  const program = await startHere(t, { cwd });
  const verify = { args: ['verify'], cwd };
  t.match(await runHere(t, verify), { code: 0, stdout: /: 1 plant, /, stderr: /^$/ });
  appendFileSync(program.log, 'x\n');
  t.match(await runHere(t, verify), { code: FAILED, stdout: /1 damaged line$/m, stderr: /^$/ });
  // They try for 3 s.
  hastenTimers(t, 3_000);
  const sentence = `${program.log}: a process has the log open ("fuser ${program.log}" shows which one); one log serves one process, PostgreSQL serves several`;
  for (const args of [[], ['repair'], ['repair', program.log]])
    await failsHere(t, FAILED, [sentence], { args, cwd });
  t.equal(readFileSync(program.log, 'utf8'), `${FERN}x\n`);
});

for (const command of ['verify', 'repair'])
  t.test(`${command} refuses what is not a log, names it, and creates none`, async (t) => {
    const cwd = t.testdir({ folder: {} });
    execFileSync('mkfifo', [join(cwd, 'pipe')]);
    const sentences = {
      none: 'no such file or directory (ENOENT)',
      folder: 'it is not a regular file',
      pipe: 'it is not a regular file',
    };
    for (const [name, sentence] of Object.entries(sentences)) {
      const fault = `${cwd}/${name}: ${sentence}`;
      await failsHere(t, FAILED, [fault], { args: [command, name], cwd });
      const env = { PLANT_STORE_FILE: name, PLANT_STORE_PORT: 'wrong' };
      await failsHere(t, FAILED, [`PLANT_STORE_FILE: ${fault}`], { args: [command], cwd, env });
    }
    const fault = 'PLANT_STORE_FILE: must not be empty; leave it out instead';
    await failsHere(t, MISUSED, [fault], { args: [command], cwd, env: { PLANT_STORE_FILE: ' ' } });
    t.strictSame(readdirSync(cwd).toSorted(), ['folder', 'pipe']);
  });

for (const command of ['', 'verify', 'repair'])
  t.test(`plant-store ${command} shows its progress, and a signal ends it meanwhile`, async (t) => {
    stepClock(t, 1_000);
    const content = command ? `x\n${LARGE_LOG}` : LARGE_LOG;
    const cwd = t.testdir({ 'plants.jsonl': content });
    const options = { args: command ? [command] : [], cwd };
    const program = launchHere(t, options);
    await program.says('stderr', / %\n/);
    // Only the server reads anything again on SIGHUP.
    program.send(command ? 'SIGHUP' : 'SIGTERM');
    t.equal((await program.ended).code, command ? EXIT.interrupted : EXIT.done);
    t.match(program.stderr, command ? /: interrupted; run the same command again .+\n$/ : / %\n$/);
    t.notMatch(program.stdout, 'plants.jsonl', 'there is no summary');
    t.strictSame(readdirSync(cwd), ['plants.jsonl'], 'the lock is released');
    t.equal(readFileSync(join(cwd, 'plants.jsonl'), 'utf8'), content);

    const again = launchHere(t, options);
    await again.says('stdout', command ? / 1 damaged line/ : /plants: 2000/);
    const reports = again.stderr.match(/(?<=^plant-store: reading .+plants\.jsonl: )\d+(?= %$)/gm);
    const percentages = reports?.map(Number) ?? [];
    const grow = percentages.every((each, n) => each >= (percentages[n - 1] ?? 0));
    t.ok(percentages.length > 2 && grow && percentages.at(-1) === 100, percentages.join());
  });

t.test('verify waits for the reader of its output, and prints every damaged line', async (t) => {
  const COUNT = 10_000;
  const cwd = t.testdir({ 'plants.jsonl': 'x\n'.repeat(COUNT) });
  const program = launchHere(t, { args: ['verify'], cwd });
  const { writableHighWaterMark: room } = process.stdout;
  let waiting = 0;
  for (let isOver = false; !isOver; waiting = Math.max(waiting, process.stdout.writableLength))
    isOver = await Promise.race([program.ended.then(() => true), setImmediate(false)]);
  const lines = program.stdout.trimEnd().split('\n');
  t.equal(lines.filter((line) => line.endsWith(NO_PLANT)).length, COUNT);
  t.match(lines.at(-2), `: 0 plants, ${2 * COUNT} bytes, ${COUNT} damaged lines`);
  t.ok(waiting > room / 2 && waiting < 2 * room, `${waiting} bytes waited in the program`);
});

t.test('verify ends without an error once the reader of its output has closed it', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': 'x\n'.repeat(100_000) });
  const program = launch(t, { args: ['verify'], cwd, env: ENV, preload: STILL });
  program.leave('stdout');
  t.strictSame(await program.ended, { code: FAILED, signal: null });
  t.equal(program.stderr, '');
});
