import { readdirSync, readFileSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { gzipSync } from 'node:zlib';

import t, { type Test } from 'tap';

import { openPlantLog, readPlantLog } from '../../../dist/index.js';
import { encodeRecord } from '../../../dist/log/encode.js';
import { MAX_RECORD_BYTES } from '../../../dist/log/record.js';
import { addPlants } from '../../../dist/program/commands/import.js';
import { blocks } from '../../helpers/documents.js';
import { exactly } from '../../helpers/exactly.js';
import { FERN, FERN_JSON, inJson, IVY } from '../../helpers/plants.js';
import {
  FAILED,
  expectFailedRunHere,
  INTERRUPTED,
  launchHere,
  run,
  runHere,
} from '../../helpers/program.js';
import { stepClock } from '../../helpers/service.js';
import { collect, storeOf } from '../../helpers/stores.js';

// The clock stands still, so that no progress is reported.
stepClock(t, 0);

/**
 * Imports a file with this content in a new folder. Resolves to the output of the command and the
 * plants in the log.
 */
async function importFile(t: Test, content: string | Buffer, cwd = t.testdir()) {
  writeFileSync(join(cwd, 'given.jsonl'), content);
  const { code, stdout, stderr } = await runHere(t, { cwd, args: ['import', 'given.jsonl'] });
  t.equal(stderr, '');
  const plants = await collect(readPlantLog(join(cwd, 'plants.jsonl')));
  const [place, ...lines] = stdout.split('\n').slice(0, -1);
  t.equal(place, `log: ${join(cwd, 'plants.jsonl')}`);
  return { code, lines, plants, cwd };
}

const summary = (imported: string, unchanged: number, refused: string): string =>
  `given.jsonl: ${imported} imported, ${unchanged} unchanged, ${refused} refused`;

const RECORD = encodeRecord({ id: -(2n ** 63n), name: 'pâquerette "\ud800', tag: '' });

t.test('an import takes what POST /plants takes, and the lines of a log', async (t) => {
  const lines = [
    '',
    '\ufeff{"id":1,"name":"fern"}',
    '  { "tag" : "indoor", "name" : "\\u0069vy", "id" : 2.0 } ',
    '{"id":9007199254740993,"name":"oak"}',
    '{"id":4,"name":"elm","colour":{"crc32":30},"also":[1,2]}',
    '',
    ' \t',
    RECORD.trimEnd(),
    `\ufeff ${encodeRecord({ id: 6n, name: 'ash' }).trimEnd().replaceAll(',', ', ')}`,
    `{"id":7,"name":"${'x'.repeat(600_000)}"}`,
    '{"id":1,"name":"fern"}',
  ];
  const { code, lines: output, plants } = await importFile(t, lines.join('\r\n'));
  t.strictSame(output, [summary('7 plants', 1, '0 lines')]);
  t.equal(code, 0);
  t.strictSame(plants, [
    { id: 1n, name: 'fern' },
    { id: 2n, name: 'ivy', tag: 'indoor' },
    { id: 9_007_199_254_740_993n, name: 'oak' },
    { id: 4n, name: 'elm' },
    { id: -(2n ** 63n), name: 'pâquerette "\ud800', tag: '' },
    { id: 6n, name: 'ash' },
    { id: 7n, name: 'x'.repeat(600_000) },
  ]);
  t.strictSame((await importFile(t, ' \n')).lines, [summary('0 plants', 0, '0 lines')]);
});

t.test('refused lines are named with the reason, and the other lines are stored', async (t) => {
  const idRule = 'id: must be an integer between -9223372036854775808 and 9223372036854775807';
  const rows: readonly (readonly [line: string | Buffer, reason?: string])[] = [
    [FERN_JSON],
    ['{"id":"2","name":7}', `${idRule}, not a string; name: must be a string`],
    [Buffer.from([0x22, 0xff, 0x22]), 'body: must be one JSON text in UTF-8; it is not UTF-8'],
    [inJson({ ...IVY, id: FERN.id }), 'id: belongs to a different plant; send another id'],
    [RECORD.trimEnd().replace('pâq', 'paq'), 'crc32: does not match the plant'],
    [inJson(IVY)],
    ['{"id":9,"na', 'body: must be one JSON text in UTF-8; it is not valid at position 11'],
  ];
  const content = Buffer.concat(
    rows.flatMap(([line], n) => [Buffer.from(n ? '\n' : ''), Buffer.from(line)]),
  );
  const refusals = rows.flatMap(([, reason], n) => (reason ? `line ${n + 1}: ${reason}` : []));
  const { code, lines, plants, cwd } = await importFile(t, content);
  t.strictSame(lines, [...refusals, summary('2 plants', 0, '5 lines')]);
  t.equal(code, 1);
  t.match(plants, exactly(FERN, IVY));
  const again = await importFile(t, content, cwd);
  t.equal(again.lines.at(-1), summary('0 plants', 2, '5 lines'));
  t.strictSame(again.plants, plants);
});

t.test('a line of white space is skipped only if JSON allows this white space', async (t) => {
  const units = Array.from({ length: 0x1_0000 }, (_, unit) => String.fromCharCode(unit));
  const others = units.filter((unit) => /[^ \t\r\n]/.test(unit) && /\s/.test(unit));
  const lines = [FERN_JSON, '', ' ', '\t', '\r', ' \t \r', ...others];
  // In Latin-1, this byte is a no-break space.
  const content = Buffer.concat([Buffer.from(lines.join('\n')), Buffer.of(0x0a, 0xa0)]);
  const imported = await importFile(t, content);
  const refused = `${others.length + 1} lines`;
  t.equal(imported.lines.at(-1), summary('1 plant', 0, refused));
});

t.test('the documented command imports a file, and - stands for stdin', async (t) => {
  const cwd = t.testdir({ 'plants.jsonl': `${FERN_JSON}\n` });
  symlinkSync(resolve('dist'), join(cwd, 'dist'));
  const [command = ''] = blocks('Importing plants', 'sh').map((code) => code.trim());
  const given = `${command}; cat plants.jsonl | ${command.replace('plants.jsonl', '-')}`;
  const { code, stdout } = await run(t, { cwd, command: ['sh', '-c', given] });
  const log = `log: ${join(cwd, 'data/plants.jsonl')}`;
  t.strictSame(stdout.split('\n'), [
    log,
    'plants.jsonl: 1 plant imported, 0 unchanged, 0 lines refused',
    log,
    '-: 0 plants imported, 1 unchanged, 0 lines refused',
    '',
  ]);
  t.equal(code, 0);
  t.match(readFileSync(join(cwd, 'data/plants.jsonl'), 'utf8'), FERN_JSON.slice(0, -1));
});

t.test('a file that does not begin with a JSON object is refused as a whole', async (t) => {
  const path = join(t.testdir(), 'given');
  const never = async () => t.fail('a store is opened') as never;
  const others = {
    'an array on one line': `[${FERN_JSON}]`,
    'JSON on several lines': '{\n  "id": 1,\n  "name": "fern"\n}\n',
    'lines with commas': `${FERN_JSON},\n${FERN_JSON}\n`,
    gzip: gzipSync(FERN_JSON),
  };
  for (const [what, content] of Object.entries(others))
    for (const blank of ['', '\n \r\n']) {
      writeFileSync(path, Buffer.concat([Buffer.from(blank), Buffer.from(content)]));
      const message = `${path}: line ${blank ? 3 : 1} is not a JSON object; the file must be JSON lines, one plant a line; nothing was imported`;
      await t.rejects(addPlants(path, never, new AbortController().signal), { message }, what);
    }
});

t.test('every refused line is listed, also beyond the first read of the file', async (t) => {
  const count = 100;
  const line = `{"colour":"${'x'.repeat(10_000)}"}\n`;
  const { lines, code } = await importFile(t, `${line.repeat(count)}${FERN_JSON}\n`);
  const numbers = lines.flatMap((line) => /^line (\d+): /.exec(line)?.[1] ?? []);
  const expected = Array.from({ length: count }, (_, index) => String(index + 1));
  t.equal(numbers.join(), expected.join());
  t.equal(lines.at(-1), summary('1 plant', 0, `${count} lines`));
  t.equal(code, FAILED);
});

t.test('a file that cannot be read is named, and the lines before are stored', async (t) => {
  const cwd = t.testdir({ folder: {}, long: `${FERN_JSON}\n{}\n` });
  const reasons = {
    none: 'no such file or directory (ENOENT)',
    folder: 'illegal operation on a directory (EISDIR)',
  };
  for (const [file, reason] of Object.entries(reasons))
    await expectFailedRunHere(t, FAILED, [`${file}: ${reason}`], { cwd, args: ['import', file] });
  t.strictSame(readdirSync(cwd), ['folder', 'long'], 'nothing is created');
  truncateSync(join(cwd, 'long'), MAX_RECORD_BYTES + 100);
  t.match(await runHere(t, { cwd, args: ['import', 'long'] }), {
    code: FAILED,
    stdout: /^log: .*\nline 2: .*\nlong: 1 plant imported, 0 unchanged, 1 line refused\n$/,
    stderr:
      /^plant-store: long: line 3 is longer than 134217728 bytes; nothing from there on .+\n$/,
  });
});

t.test('an import shows its progress, and a second import completes the first', async (t) => {
  stepClock(t, 1_000);
  const COUNT = 1_000;
  const ids = Array.from({ length: COUNT }, (_, id) => id);
  const content = ids.map((id) => `{"id": ${id}, "name": "${'x'.repeat(1_000)}"}\n`).join('');
  const cwd = t.testdir({ 'given.jsonl': content });
  const command = { cwd, args: ['import', 'given.jsonl'] };
  const first = launchHere(t, command);
  const [, shown] = await first.says('stderr', /importing given\.jsonl: (\d+) plants\n/);
  first.send('SIGTERM');
  t.equal((await first.ended).code, INTERRUPTED);
  const count = readFileSync(join(cwd, 'plants.jsonl'), 'utf8').split('\n').length - 1;
  t.ok(count >= Number(shown) && count < COUNT, `${count} plants`);
  const place = `log: ${join(cwd, 'plants.jsonl')}\n`;
  t.equal(first.stdout, `${place}${summary(`${count} plants`, 0, '0 lines')}\n`);
  const { stdout, stderr } = await runHere(t, command);
  t.equal(stdout, `${place}${summary(`${COUNT - count} plants`, count, '0 lines')}\n`);
  t.match(stderr, / 1000 plants\n$/);
});

t.test('an import refuses a plant that is too large, and fails if the disk fails', async (t) => {
  const given = [1n, 2n, 3n, 4n].map((id) => `${inJson({ ...FERN, id })}\n`).join('');
  const path = join(t.testdir({ 'given.jsonl': given }), 'given.jsonl');
  const failures = [new RangeError('the plant is too large'), new Error('the disk failed')];
  const store = storeOf(async ({ id }) => {
    const failure = failures[Number(id) - 1];
    if (failure) throw failure;
    return 'created';
  });
  const printed = t.capture(console, 'log', () => undefined);
  const listed: string[] = [];
  const write = (text: string): boolean => listed.push(text) > 0;
  t.intercept(process, 'stdout', { value: { write } });
  const never = new AbortController().signal;
  await t.rejects(
    addPlants(path, async () => ({ store }), never),
    { message: `${path}: line 2: the disk failed` },
  );
  t.strictSame(listed, ['line 1: the plant is too large\n']);
  t.match(printed()[0]?.args[0], /: 2 plants imported, 0 unchanged, 1 line refused$/);
});

t.test('an import fails if the log has been emptied when it ends', async (t) => {
  const cwd = t.testdir({ 'given.jsonl': RECORD });
  const log = await openPlantLog(join(cwd, 'plants.jsonl'), { report: () => undefined });
  async function close(): Promise<void> {
    truncateSync(log.path);
    await log.close();
  }
  const emptied = Object.assign(Object.create(log) as typeof log, { close });
  t.capture(console, 'log', () => undefined);
  const importing = addPlants(
    join(cwd, 'given.jsonl'),
    async () => ({ store: emptied, log: emptied }),
    new AbortController().signal,
  );
  await t.rejects(importing, { code: 'unavailable', message: /modified/ });
});
