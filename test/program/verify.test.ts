import { execFileSync } from 'node:child_process';
import { appendFileSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import t from 'tap';

import { encodeRecord } from '../../dist/log/record.js';
import { TOKEN } from '../client.js';
import {
  failsToRun,
  LARGE_LOG,
  launch,
  onceReading,
  run,
  runWithLateReader,
  start,
  toItself,
} from '../system/program.js';

const FERN = encodeRecord({ id: 7n, name: 'Boston fern', tag: 'indoor' });
const IVY = encodeRecord({ id: 8n, name: 'ivy' });
const SETTING = { PLANT_STORE_FILE: 'plants.jsonl' };
const FAILED = 1;
const NOT_A_RECORD = 'it is not a valid record, or its checksum does not match';

interface Example {
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly content: string;
  readonly code: number;
  readonly lines: readonly string[];
}

const examples: Record<string, Example> = {
  'the configured log, whole': {
    args: ['verify'],
    env: SETTING,
    content: FERN + IVY,
    code: 0,
    lines: [`FILE: 2 plants, ${FERN.length + IVY.length} bytes, 0 damaged lines`],
  },
  'a log named as operand, damaged and torn': {
    args: ['verify', 'plants.jsonl'],
    env: { PLANT_STORE_FILE: 'another', PLANT_STORE_PORT: 'not used' },
    content: [FERN, 'x\n', IVY, FERN, '{"id":'].join(''),
    code: 1,
    lines: [
      `line 2, byte ${FERN.length}: ${NOT_A_RECORD}`,
      `line 4, byte ${FERN.length + 2 + IVY.length}: it repeats the id of the line at byte 0`,
      `FILE: 2 plants, ${2 * FERN.length + 2 + IVY.length + 6} bytes, 2 damaged lines`,
      'after the last line, 6 bytes of an incomplete write',
    ],
  },
  'a log with one damaged line': {
    args: ['verify'],
    env: SETTING,
    content: `${FERN}x\n`,
    code: 1,
    lines: [
      `line 2, byte ${FERN.length}: ${NOT_A_RECORD}`,
      `FILE: 1 plant, ${FERN.length + 2} bytes, 1 damaged line`,
    ],
  },
  'a torn log': {
    args: ['verify'],
    env: SETTING,
    content: `${FERN}{"id":8`,
    code: 0,
    lines: [
      `FILE: 1 plant, ${FERN.length + 7} bytes, 0 damaged lines`,
      'after the last line, 7 bytes of an incomplete write',
    ],
  },
};

for (const [what, { args, env, content, code, lines }] of Object.entries(examples))
  t.test(`verify prints what a log holds, and changes nothing: ${what}`, async (t) => {
    const cwd = t.testdir({ 'plants.jsonl': content });
    const path = join(cwd, 'plants.jsonl');
    const ended = await run(t, { args, env, cwd });
    t.strictSame(ended.stdout.replaceAll(path, 'FILE').split('\n'), [...lines, '']);
    t.match(ended, { code, stderr: /^$/ });
    t.equal(readFileSync(path, 'utf8'), content);
    t.strictSame(readdirSync(cwd), ['plants.jsonl']);
  });

t.test('verify reads a log that a server has open', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': FERN });
  const env = { ...SETTING, PLANT_STORE_TOKEN: TOKEN };
  const program = await start(t, { cwd, env });
  const whole = await run(t, { args: ['verify'], cwd, env });
  t.match(whole, { code: 0, stdout: /: 1 plant, /, stderr: /^$/ });
  appendFileSync(program.log, 'x\n');
  const damaged = await run(t, { args: ['verify'], cwd, env });
  t.match(damaged, { code: 1, stdout: /1 damaged line$/m, stderr: /^$/ });
});

t.test('verify refuses what is not a file, and creates none', async (t) => {
  const cwd = t.testdir({ folder: {} });
  execFileSync('mkfifo', [join(cwd, 'pipe')]);
  const sentences = {
    none: 'no such file or directory (ENOENT)',
    folder: 'it is not a regular file',
    pipe: 'it is not a regular file',
  };
  for (const [name, sentence] of Object.entries(sentences))
    await failsToRun(t, 1, [`${cwd}/${name}: ${sentence}`], { args: ['verify', name], cwd });
  t.strictSame(readdirSync(cwd).toSorted(), ['folder', 'pipe']);
});

t.test('verify waits for the reader of its output, and prints every damaged line', async (t) => {
  const COUNT = 50_000;
  const cwd = t.testdir({ 'plants.jsonl': 'x\n'.repeat(COUNT) });
  const args = ['verify', 'plants.jsonl'];
  const { code, lines, waiting } = await runWithLateReader(t, { args, cwd });
  t.equal(code, FAILED);
  t.equal(lines.filter((line) => line.endsWith(NOT_A_RECORD)).length, COUNT);
  t.match(lines.at(-1), `: 0 plants, ${2 * COUNT} bytes, ${COUNT} damaged lines`);
  t.ok(waiting > 0 && waiting < 100_000, `${waiting} bytes waited in the program`);
});

t.test(
  'verify ends quietly, without reading on, once the reader of its output is gone',
  async (t) => {
    const cwd = t.testdir({ 'plants.jsonl': `x\n${LARGE_LOG}` });
    const program = launch(t, { args: ['verify'], cwd, env: SETTING });
    program.leave('stdout');
    t.strictSame(await program.ended, { code: 1, signal: null });
    t.equal(program.stderr, '');
  },
);

t.test('a signal ends verify while it is reading', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': LARGE_LOG });
  const preload = onceReading(toItself('SIGTERM'));
  const { code, stdout, stderr } = await run(t, { args: ['verify'], cwd, env: SETTING, preload });
  t.strictSame({ code, stdout }, { code: 3, stdout: '' });
  t.match(stderr, /^(?:plant-store: reading .+ %\n)*plant-store: interrupted; .+\n$/);
});
