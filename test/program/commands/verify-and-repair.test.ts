/* Tests the commands verify and repair, and what they have in common with export and a start. */
import { appendFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';

import t from 'tap';

import { encodeRecord } from '../../../dist/log/encode.js';
import { nodeSystem } from '../../../dist/log/system.js';
import { FERN, IVY, MOSS } from '../../helpers/plants.js';
import {
  ENV,
  FAILED,
  expectFailedRunHere,
  INTERRUPTED,
  launch,
  launchHere,
  runHere,
  startHere,
  STILL,
} from '../../helpers/program.js';
import { stepClock } from '../../helpers/service.js';
import { lineOf, signed } from '../../log/support.js';

/** Text is in Latin-1, so that its length is in bytes. */
const [fern, ivy, moss] = [lineOf(FERN), lineOf(IVY), lineOf(MOSS)];
const damagedIvy = ivy.replace('ivy', 'ivi');
const newer = signed('{"id":9,"name":"moss","light":"shade"');
const NEWER = 'a newer version of plant-store has written it; use that version';
const NO_PLANT = 'body: must be one JSON text in UTF-8; it is not valid';
const KEPT = 'KEPT is the log as it was';
const HINT = 'if a removed line held an acknowledged plant, import it from a backup';

// The clock stands still, so that no progress is reported.
stepClock(t, 0);

type Example = readonly [command: string, content: string, code: number, ...lines: string[]];

const EXAMPLES: Record<string, Example> = {
  'a whole log': [
    'verify',
    fern + ivy,
    0,
    `FILE: 2 plants, ${fern.length + ivy.length} bytes, 0 damaged lines`,
  ],
  'a torn line': [
    'verify',
    `${fern}{"id":8`,
    0,
    `FILE: 1 plant, ${fern.length + 7} bytes, 0 damaged lines`,
    'after the last line, 7 bytes of an incomplete write',
  ],
  'no newline at the end': [
    'verify',
    fern.trimEnd(),
    0,
    `FILE: 1 plant, ${fern.length - 1} bytes, 0 damaged lines`,
    'the last line has no newline; it gets one when the log is opened or repaired',
  ],
  'an empty log': ['verify', '', 0, 'FILE: 0 plants, 0 bytes, 0 damaged lines'],
  'no log': [
    'verify',
    'some text',
    FAILED,
    'FILE: 0 plants, 9 bytes, 0 damaged lines',
    'after the last line, 9 bytes of an incomplete write',
    'no line is a record: it is not a log of plants',
  ],
  'damaged lines and a torn one': [
    'verify',
    [fern, 'x\n', ivy, fern, '{"id":'].join(''),
    FAILED,
    `line 2, byte ${fern.length}: ${NO_PLANT}`,
    `line 4, byte ${fern.length + 2 + ivy.length}: it repeats the id of the line at byte 0`,
    `FILE: 2 plants, ${2 * fern.length + 2 + ivy.length + 6} bytes, 2 damaged lines`,
    'after the last line, 6 bytes of an incomplete write',
  ],
  'damaged lines and a torn one, repaired': [
    'repair',
    [fern, '\n', ivy, damagedIvy, moss, '{"id":4,'].join(''),
    FAILED,
    'FILE: kept 3 plants, removed 2 damaged lines, removed 8 bytes of an incomplete write',
    KEPT,
    HINT,
  ],
  'CR LF, repaired': [
    'repair',
    [fern, damagedIvy, moss].join('').replaceAll('\n', '\r\n'),
    FAILED,
    'FILE: kept 2 plants, wrote 2 lines again, removed 1 damaged line',
    KEPT,
    HINT,
  ],
  'CR LF only, repaired': [
    'repair',
    `${fern.trimEnd()}\r\n`,
    0,
    'FILE: kept 1 plant, wrote 1 line again',
    KEPT,
  ],
  'lines of a newer version': [
    'verify',
    [fern, newer, 'x\n', newer].join(''),
    FAILED,
    `line 2, byte ${fern.length}: ${NEWER}`,
    `line 3, byte ${fern.length + newer.length}: ${NO_PLANT}`,
    `line 4, byte ${fern.length + newer.length + 2}: ${NEWER}`,
    `FILE: 1 plant, ${fern.length + 2 * newer.length + 2} bytes, 1 damaged line`,
    '2 lines of a newer version of plant-store; repair changes nothing',
  ],
  'a whole log, repaired': ['repair', fern, 0, 'FILE: no line is damaged; nothing was changed'],
};

t.test('verify prints what a log holds, and repair what it has done', async (t) => {
  const cwd = t.testdir();
  const path = join(cwd, 'plants.jsonl');
  for (const [what, [command, content, code, ...lines]] of Object.entries(EXAMPLES)) {
    writeFileSync(path, content, 'latin1');
    const ended = await runHere(t, { args: [command], cwd });
    const stdout = ended.stdout
      .replaceAll(path, 'FILE')
      .replace(/FILE\.damaged-[0-9a-f]{16}/, 'KEPT');
    t.strictSame(stdout.split('\n'), [...lines, ''], what);
    t.match(ended, { code, stderr: /^$/ }, what);
  }
});

t.test('a log that a server has open can be verified, not repaired or served', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': encodeRecord(FERN) });
  const { log } = await startHere(t, { cwd });
  appendFileSync(log, 'x\n');
  const verified = await runHere(t, { args: ['verify'], cwd });
  t.match(verified, { code: FAILED, stdout: /: 1 plant, .*, 1 damaged line$/m, stderr: /^$/ });
  // A process does not wait for the lock.
  const { startTimer } = nodeSystem;
  t.intercept(nodeSystem, 'startTimer', {
    value: (onExpiry: () => void) => startTimer(onExpiry, 0),
  });
  const sentence = `${log}: a process has the log open ("fuser ${log}" shows which one); one log serves one process, PostgreSQL serves several`;
  for (const args of [[], ['repair']])
    await expectFailedRunHere(t, FAILED, [sentence], { args, cwd });
});

t.test('an error names a missing log, and the setting if the path comes from one', async (t) => {
  const cwd = t.testdir();
  const fault = `${cwd}/none: no such file or directory (ENOENT)`;
  const env = { PLANT_STORE_FILE: 'none', PLANT_STORE_PORT: 'wrong' };
  for (const command of ['verify', 'repair', 'export']) {
    await expectFailedRunHere(t, FAILED, [fault], { args: [command, 'none'], cwd });
    await expectFailedRunHere(t, FAILED, [`PLANT_STORE_FILE: ${fault}`], {
      args: [command],
      cwd,
      env,
    });
  }
});

/** A log that is read in several steps. */
const LARGE_LOG = Array.from({ length: 500 }, (_, id) =>
  encodeRecord({ id: BigInt(id), name: 'x'.repeat(990) }),
).join('');

for (const command of ['', 'verify', 'repair'])
  t.test(`plant-store ${command} shows its progress, and a signal ends it meanwhile`, async (t) => {
    stepClock(t, 1_000);
    const content = command ? `x\n${LARGE_LOG}` : LARGE_LOG;
    const cwd = t.testdir({ 'plants.jsonl': content });
    const options = { args: command ? [command] : [], cwd };
    const program = launchHere(t, options);
    await program.says('stderr', / %\n/);
    // SIGHUP ends these commands. Only the server reads its tokens again instead.
    program.send(command ? 'SIGHUP' : 'SIGTERM');
    t.equal((await program.ended).code, command ? INTERRUPTED : 0);
    t.match(program.stderr, command ? /: interrupted; run the same command again .+\n$/ : / %\n$/);
    t.notMatch(program.stdout, 'plants.jsonl', 'there is no summary');
    t.strictSame(readdirSync(cwd), ['plants.jsonl'], 'the lock is released');
    t.equal(readFileSync(join(cwd, 'plants.jsonl'), 'utf8'), content);

    const again = launchHere(t, options);
    await again.says('stdout', command ? / 1 damaged line/ : /plants: \d/);
    const reports = again.stderr.match(/(?<=^plant-store: reading .+plants\.jsonl: )\d+(?= %$)/gm);
    const percentages = reports?.map(Number) ?? [];
    const grow = percentages.every((each, n) => each >= (percentages[n - 1] ?? 0));
    t.ok(percentages.length > 2 && grow && percentages.at(-1) === 100, percentages.join());
  });

t.test('verify waits for the reader of its output, and prints every damaged line', async (t) => {
  const COUNT = 2_000;
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
  // The lines about the damage are more than a stream takes before the next line has to wait.
  const cwd = t.testdir({ 'plants.jsonl': 'x\n'.repeat(1_000) });
  const program = launch(t, { args: ['verify'], cwd, env: ENV, preload: STILL });
  program.leave('stdout');
  t.strictSame(await program.ended, { code: FAILED, signal: null });
  t.equal(program.stderr, '');
});
