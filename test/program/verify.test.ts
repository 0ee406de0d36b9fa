import { appendFileSync, readdirSync, readFileSync, truncateSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { encodeRecord } from '../../dist/log/record.js';
import { ENV, FAILED, launch, run, runWithLateReader, start, STILL } from '../system/program.js';

const FERN = encodeRecord({ id: 7n, name: 'Boston fern', tag: 'indoor' });
const IVY = encodeRecord({ id: 8n, name: 'ivy' });
const NO_PLANT = 'it must be one JSON text in UTF-8; it is not valid';

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
  'saved with CR LF': [
    `${FERN.trimEnd()}\r\n`,
    FAILED,
    'line 1, byte 0: it ends with CR LF, where a record ends with LF',
    `FILE: 1 plant, ${FERN.length + 1} bytes, 1 damaged line`,
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

for (const [what, [content, code, ...lines]] of Object.entries(examples))
  t.test(`verify prints what a log holds, and changes nothing: ${what}`, async (t) => {
    const cwd = t.testdir({ 'plants.jsonl': content });
    const path = join(cwd, 'plants.jsonl');
    const ended = await run(t, { args: ['verify'], env: ENV, cwd });
    t.strictSame(ended.stdout.replaceAll(path, 'FILE').split('\n'), [...lines, '']);
    t.match(ended, { code, stderr: /^$/ });
    t.equal(readFileSync(path, 'utf8'), content);
    t.strictSame(readdirSync(cwd), ['plants.jsonl']);
  });

t.test('verify reads a log that a server has open', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': FERN });
  const { log } = await start(t, { cwd, env: ENV });
  const verify = { args: ['verify'], cwd, env: ENV };
  t.match(await run(t, verify), { code: 0, stdout: /: 1 plant, /, stderr: /^$/ });
  appendFileSync(log, 'x\n');
  t.match(await run(t, verify), { code: FAILED, stdout: /1 damaged line$/m, stderr: /^$/ });
});

t.test('verify waits for the reader of its output, and prints every damaged line', async (t) => {
  const COUNT = 50_000;
  const cwd = t.testdir({ 'plants.jsonl': 'x\n'.repeat(COUNT) });
  const args = ['verify', 'plants.jsonl'];
  const { code, lines, waiting } = await runWithLateReader(t, { args, cwd });
  t.equal(code, FAILED);
  t.equal(lines.filter((line) => line.endsWith(NO_PLANT)).length, COUNT);
  t.match(lines.at(-2), `: 0 plants, ${2 * COUNT} bytes, ${COUNT} damaged lines`);
  t.ok(waiting > 0 && waiting < 100_000, `${waiting} bytes waited in the program`);
});

t.test(
  'verify ends quietly, without reading on, once the reader of its output is gone',
  async (t) => {
    const cwd = t.testdir({ 'plants.jsonl': 'x\n' });
    // Eight tebibytes, which take hours to read and no space.
    truncateSync(join(cwd, 'plants.jsonl'), 2 ** 43);
    const program = launch(t, { args: ['verify'], cwd, env: ENV, preload: STILL });
    program.leave('stdout');
    t.strictSame(await program.ended, { code: FAILED, signal: null });
    t.equal(program.stderr, '');
  },
);
