/* The commands of the document of the log. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

import t from 'tap';

import { encodeRecord } from '../../dist/log/encode.js';
import type { NewPlant } from '../../dist/plant.js';
import { block, blocks, read, shell } from '../helpers/documents.js';
import { missing } from '../helpers/needs.js';
import { FERN, inJson, IVY, MOSS, REED } from '../helpers/plants.js';
import { lineOf } from '../log/support.js';

/** A link to the program, with the name that the commands use. */
const dist = t.fixture('symlink', resolve('dist'));
/** A link to the sources, which contain the script for CSV. */
const src = t.fixture('symlink', resolve('src'));

const [READABLE = '', SQLITE = '', LOOKUPS = ''] = blocks('Reading a log', 'sh');
const [IMPORT = '', CONVERT = ''] = blocks('Importing plants', 'sh');
const [, SHOW_LINE = ''] = /`(sed -n [^`]+)`/.exec(read('src/log/README.md')) ?? [];
const CORRECT = block('Correcting or deleting a plant', 'sh');

/** Plants whose strings other programs read in another way than JSON.parse. */
const STRANGE: readonly NewPlant[] = [
  { id: 1n, name: '\ud800\udbff x', tag: 'NUL \0' },
  { id: 2n, name: '\\\ud800\\ud800\\\\\udfff\\', tag: '\\u0000 \\\\\0"' },
  { id: 3n, name: '\u{1f33f}\udfff', tag: '\u001f\n' },
];

/** The files of a folder with a log that has these plants. */
function logWith(plants: readonly NewPlant[]): { readonly data: Record<string, string> } {
  return { data: { 'plants.jsonl': plants.map(encodeRecord).join('') } };
}

t.test('sed replaces exactly NUL and lone surrogates', async (t) => {
  const cwd = t.testdir(logWith(STRANGE));
  await shell(READABLE, cwd);
  const lines = readFileSync(join(cwd, 'readable.jsonl'), 'utf8').trimEnd().split('\n');
  const clean = (text: unknown): string => String(text).replaceAll(/[\p{Surrogate}\0]/gu, '\ufffd');
  t.strictSame(
    lines.map((line) => {
      const { name, tag } = JSON.parse(line) as NewPlant;
      return { name, tag };
    }),
    STRANGE.map(({ name, tag }) => ({ name: clean(name), tag: clean(tag) })),
  );
});

t.test(
  'pandas and DuckDB read exact ids, and keep strings',
  { skip: missing('python3', 'pandas', 'duckdb') },
  async (t) => {
    const [pandas, duckdb] = block('Reading a log', 'python').trim().split('\n');
    const script = `import json, pandas, duckdb
frame = ${pandas}
print(json.dumps(frame[['id', 'name', 'tag']].to_dict('split')['data']))
print(json.dumps(${duckdb}.fetchall()))`;
    const plants: readonly NewPlant[] = [
      { id: 2n ** 63n - 1n, name: '007', tag: '2024-01-01' },
      { id: -(2n ** 63n), name: '1e5', tag: '2024-01-02' },
    ];
    const cwd = t.testdir({ ...logWith(plants), script });
    const read = `[${plants.map(({ id, name, tag }) => `[${id}, "${name}", "${tag}"]`).join(', ')}]`;
    t.equal(await shell('python3 script', cwd), `${read}\n${read}\n`);

    const log = join(cwd, 'data/plants.jsonl');
    writeFileSync(log, STRANGE.map(encodeRecord).join(''));
    await t.rejects(shell('python3 script', cwd), { message: /surrogate/ });
    await shell(`${READABLE}mv readable.jsonl data/plants.jsonl`, cwd);
    const [first, second] = (await shell('python3 script', cwd)).split('\n');
    t.equal(first, second);
    t.match(first, String.raw`[[1, "\ufffd\ufffd x", "NUL \ufffd"], [2, `);
  },
);

t.test('SQLite reads a log', { skip: missing('sqlite3') }, async (t) => {
  const lines = [
    '{"id":9223372036854775807,"name":"a \\"fern\\"","tag":"a,b"}\n',
    '{"id":9007199254740993,"name":"ivy"}\n',
  ];
  const cwd = t.testdir({ data: { 'plants.jsonl': lines.join('') } });
  const read = `${SQLITE}sqlite3 plants.db 'SELECT id, typeof(id), name, tag FROM plants'`;
  t.equal(
    await shell(read, cwd),
    '9223372036854775807|integer|a "fern"|a,b\n9007199254740993|integer|ivy|\n',
  );
});

t.test('grep finds a plant, and uniq those that one of two copies lacks', async (t) => {
  const others = [70n, -7n].map((id) => ({ ...FERN, id }));
  const cwd = t.testdir({
    ...logWith([...others, IVY, FERN, MOSS]),
    'plants.backup.jsonl': [MOSS, REED, ...others].map(encodeRecord).join(''),
  });
  t.equal(await shell(LOOKUPS, cwd), [FERN, FERN, IVY].map(encodeRecord).join(''));
  const [, compare = ''] = LOOKUPS.split('\n');
  const files: Record<string, string> = {
    'data/plants.jsonl': 'plants.backup.jsonl',
    'plants.backup.jsonl': 'data/plants.jsonl',
  };
  const swapped = compare.replaceAll(/\S+\.jsonl/g, (file) => files[file] ?? '');
  t.equal(await shell(swapped, cwd), encodeRecord(REED));
});

t.test(
  'a script turns CSV into lines, of which each faulty one is refused',
  { skip: missing('python3') },
  async (t) => {
    const faulty = ['', '007', '1_000', ' 7', '7.0', '9'.repeat(5_000)];
    const rows = [
      '\ufeffname,tag,id',
      'Löwenmaul,,9223372036854775807',
      '"a ""fern"", large","indoor\nand outdoor",9007199254740993',
      '',
      ...faulty.map((id) => `ivy,,${id}`),
      'no id',
      'oak,outdoor,12,a field too many',
      '蘭, ,-1',
    ];
    const cwd = t.testdir({ dist, src, data: {}, 'plants.csv': rows.join('\r\n') });
    const printed = await shell(`${CONVERT}${IMPORT.trimEnd()} || echo "ended with $?"`, cwd);
    const refused = [...printed.matchAll(/^line (\d+): (?:id|tag): /gm)].map(([, number]) =>
      Number(number),
    );
    t.strictSame(refused, [3, 4, 5, 6, 7, 8, 9, 10]);
    t.match(printed, /\nended with 1\n$/);
    t.equal(
      readFileSync(join(cwd, 'data/plants.jsonl'), 'utf8').replaceAll(/,"crc32":\d+/g, ''),
      `{"id":9223372036854775807,"name":"Löwenmaul"}
{"id":9007199254740993,"name":"a \\"fern\\", large","tag":"indoor\\nand outdoor"}
{"id":-1,"name":"蘭","tag":" "}
`,
    );
    t.match(printed, /^line 10: tag: must be a string$/m);
    // The row follows the first row, a row of two lines and a blank line.
    const shown = await shell(SHOW_LINE.replace('7', '4'), cwd);
    t.equal(shown, '{"line": 7, "id": "007", "name": "ivy"}\n');
    const [, , , , , , fault] = rows.join('\n').split('\n');
    t.equal(fault, 'ivy,,007');
  },
);

t.test(
  'the script for CSV prints all plants of a file, or says what is wrong and prints none',
  { skip: missing('python3') },
  async (t) => {
    const cwd = t.testdir({ src });
    const printed = (): string => readFileSync(join(cwd, 'plants.jsonl'), 'utf8');
    const rows = Array.from({ length: 2_000 }, (_, n) => `${n},oak\n`).join('');
    const ends = 'must have the columns id and name, separated by commas';
    const wrong: readonly (readonly [csv: string, stderr: string])[] = [
      ['', ends],
      ['id;name\n5;oak\n', ends],
      [
        'id,name,Tag\n5,oak,outdoor\n',
        "the column 'Tag' is unknown or repeated: rename or remove it",
      ],
      ['id,name,name\n5,oak,ash\n', "the column 'name' is unknown or repeated"],
      [`id,name\n${rows}-1,"ash\n-2,elm\n`, 'plants.csv, after line 2001: unexpected end of data'],
      [`id,name\n${rows}-1,"ash"x\n`, "plants.csv, after line 2001: ',' expected after '\"'"],
      [`id,name\n${rows}-1,\xe4\n`, "'utf-8' codec can't decode byte 0xe4"],
    ];
    for (const [csv, stderr] of wrong) {
      writeFileSync(join(cwd, 'plants.csv'), csv, 'latin1');
      await t.rejects(shell(CONVERT, cwd), { code: 1, stderr });
      t.equal(printed(), '');
    }
    writeFileSync(join(cwd, 'plants.csv'), 'id,name\n5,oak\n');
    await shell(CONVERT, cwd);
    t.equal(printed(), '{"line": 2, "id": 5, "name": "oak"}\n');
  },
);

t.test('a plant is deleted, and a corrected one is imported', async (t) => {
  const [remove = '', importCorrect = ''] = CORRECT.split('\n');
  const other = { ...FERN, id: 70n };
  const cwd = t.testdir({ dist, ...logWith([IVY, FERN, other]) });
  const log = (): string => readFileSync(join(cwd, 'data/plants.jsonl'), 'utf8');
  await t.rejects(shell(importCorrect, cwd), { code: 1, stdout: /line 1: id: belongs to/ });
  const before = log();
  await shell(remove, cwd);
  t.equal(log(), [IVY, other].map(encodeRecord).join(''));
  t.equal(readFileSync(join(cwd, 'data/plants.jsonl.old'), 'utf8'), before);
  await shell(importCorrect, cwd);
  const corrected = { id: FERN.id, name: 'Boston fern' };
  t.equal(log(), [IVY, other, corrected].map(encodeRecord).join(''));
});

t.test('commands verify, repair, restore and export a damaged log', async (t) => {
  const [verify = '', repair = '', exporting = ''] = blocks('Commands', 'sh');
  const [ivy, moss] = [encodeRecord(IVY), `${inJson(MOSS)}\n`];
  const data = { 'plants.jsonl': `${ivy}x\n` };
  const cwd = t.testdir({ dist, data, 'plants.jsonl': ivy + moss });
  await t.rejects(shell(verify, cwd), {
    code: 1,
    stdout: new RegExp(`line 2, byte ${lineOf(IVY).length}: `),
  });
  await t.rejects(shell(repair, cwd), { code: 1, stdout: /damaged-[0-9a-f]+ is the log/ });
  t.equal(readFileSync(join(cwd, 'data/plants.jsonl'), 'utf8'), ivy);
  await shell(IMPORT + exporting, cwd);
  t.equal(readFileSync(join(cwd, 'exported.jsonl'), 'utf8'), `${inJson(IVY)}\n${moss}`);
});
