import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  copyFileSync,
  lstatSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, relative } from 'node:path';

import t from 'tap';

import { MODIFIED } from '../../dist/log/errors.js';
import { nodeSystem, type System } from '../../dist/log/files.js';
import { openLog, openPlantLog } from '../../dist/log/log.js';
import { encodeRecord } from '../../dist/log/record.js';
import { exactly } from '../exactly.js';
import { filesIn } from '../faults/support.js';
import {
  FERN,
  ignore,
  IVY,
  logAt,
  logOf,
  MOSS,
  openWithFaults,
  replaceableVolume,
  UNAVAILABLE,
} from './support.js';

/* What every store promises is checked for the log by store-contract.test.ts. */

const FERN_LINE = encodeRecord(FERN);

t.test('a log is opened without a synchronous call, which a hung disk would block', async (t) => {
  const statSync = (): never => {
    throw new Error('it is called');
  };
  const path = join(t.testdir(), 'var', 'lib', 'plants.jsonl');
  const log = await openLog({ ...nodeSystem, statSync }, path);
  t.equal(log.size, 0);
  await log.close();
});

t.test('a missing log and its folders are created for the owner only', async (t) => {
  const path = join(t.testdir(), 'var', 'lib', 'plants.jsonl');
  const log = await openPlantLog(path);
  t.equal(log.path, path);
  t.equal(log.size, 0);
  t.equal(await log.add(FERN), 'created');
  t.equal(log.size, 1);
  await log.close();
  t.equal(readFileSync(path, 'utf8'), FERN_LINE);
  t.equal(statSync(path).mode & 0o777, 0o600);
  t.strictSame(readdirSync(dirname(path)), ['plants.jsonl'], 'nothing else is left');
});

t.test('a log refuses plants as soon as close is called', async (t) => {
  const log = await openPlantLog(logAt(t));
  await log.add(FERN);
  const closing = log.close();
  await t.rejects(log.add(IVY), UNAVAILABLE);
  await t.rejects(log.add(FERN), UNAVAILABLE, 'also one that is stored');
  t.equal(log.close(), closing);
  await closing;
  t.notOk(log.poisoned.aborted);
});

t.test('a log is opened by its real path, whatever path is given', async (t) => {
  const folder = t.testdir({ real: { 'plants.jsonl': logOf([FERN]) } });
  const real = join(folder, 'real', 'plants.jsonl');
  symlinkSync(real, join(folder, 'file-link'));
  symlinkSync('real', join(folder, 'folder-link'));
  const spellings = [
    relative(process.cwd(), real),
    join(folder, 'file-link'),
    join(folder, 'folder-link', 'plants.jsonl'),
    `${folder}/./real/../real//plants.jsonl`,
  ];
  for (const spelling of spellings) {
    const log = await openPlantLog(spelling);
    t.equal(log.path, real, spelling);
    t.equal(log.size, 1);
    await log.close();
  }
  t.ok(lstatSync(join(folder, 'file-link')).isSymbolicLink());

  rmSync(real);
  const created = await openPlantLog(join(folder, 'file-link'));
  t.equal(created.path, real, 'a dangling symbolic link creates the log at its target');
  await created.add(FERN);
  await created.close();
  t.equal(readFileSync(real, 'utf8'), FERN_LINE);
});

t.test('opening a log through a link syncs the folder in which its file is', async (t) => {
  const folder = t.testdir({ real: {} });
  const [real, link] = [join(folder, 'real'), join(folder, 'link')];
  symlinkSync(join('real', 'plants.jsonl'), link);
  const synced: string[] = [];
  const open: System['open'] = async (path, flags, mode) => {
    const file = await nodeSystem.open(path, flags, mode);
    const sync = file.sync.bind(file);
    file.sync = () => {
      synced.push(path);
      return sync();
    };
    return file;
  };
  await (await openLog({ ...nodeSystem, open }, link)).close();
  t.strictSame(synced.slice(-2), [real, link]);
});

t.test('opening a file that cannot be used rejects with unavailable and the reason', async (t) => {
  const folder = t.testdir({ file: '', folder: {} });
  const paths: Record<string, [path: string, message: RegExp]> = {
    'a folder': [join(folder, 'folder'), /folder: .*directory \(EISDIR\)$/],
    'a file as its folder': [join(folder, 'file', 'plants.jsonl'), /\(EEXIST\)$/],
    'a file above its folder': [join(folder, 'file', 'data', 'plants.jsonl'), /\(ENOTDIR\)$/],
    'a name that is too long': [join(folder, 'x'.repeat(256)), /\(ENAMETOOLONG\)$/],
    'a path that is none': ['\0', /null bytes/],
  };
  for (const [what, [path, message]] of Object.entries(paths))
    await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message }, what);
  t.strictSame(readdirSync(folder).toSorted(), ['file', 'folder'], 'nothing is left');
});

t.test('a path that is no string is named', async (t) => {
  for (const path of [undefined, null, 7, new URL('file:///plants.jsonl')])
    await t.rejects(openPlantLog(path as never), new TypeError('path: must be a string'));
});

t.test('only a regular file can be a log', async (t) => {
  const folder = t.testdir({ link: t.fixture('symlink', '/dev/null') });
  execFileSync('mkfifo', [join(folder, 'pipe')]);
  for (const path of ['/dev/null', join(folder, 'link'), join(folder, 'pipe')])
    await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message: /: it is not a regular file$/ });
  t.strictSame(readdirSync(folder).toSorted(), ['link', 'pipe'], 'nothing is left');
});

t.test('reports are written to the console by default', async (t) => {
  const { args } = t.capture(console, 'error') as unknown as { args: () => unknown[][] };
  const path = logAt(t, '{"id');
  await (await openPlantLog(path)).close();
  t.match(
    args(),
    exactly(exactly(/^plant-store: .*plants\.jsonl: moved 4 bytes of an incomplete write/)),
  );
});

const REED = { id: 4n, name: 'reed' };

/** What another process may do to the file of an open log, by which plants are lost. */
const LOSSES: Record<string, (path: string) => void> = {
  'truncated to nothing': (path) => truncateSync(path),
  'truncated by one byte': (path) => truncateSync(path, statSync(path).size - 1),
  removed: (path) => rmSync(path),
  renamed: (path) => renameSync(path, `${path}.old`),
  'replaced by a copy'(path) {
    renameSync(path, `${path}.old`);
    copyFileSync(`${path}.old`, path);
  },
  'replaced by a link'(path) {
    renameSync(path, `${path}.old`);
    symlinkSync('/dev/null', path);
  },
};

/** What another process may add to it, by which no plant is lost. */
const ADDITIONS: typeof LOSSES = {
  extended: (path) => appendFileSync(path, encodeRecord(REED)),
  'extended by a NUL byte': (path) => truncateSync(path, statSync(path).size + 1),
};

for (const [what, change] of Object.entries({ ...LOSSES, ...ADDITIONS })) {
  t.test(`a log that was ${what} while it was open is never written to again`, async (t) => {
    const { log, path, reports } = await openWithFaults(t, {}, { content: logOf([MOSS, IVY]) });
    change(path);
    const left = filesIn(dirname(path));
    await t.rejects(log.add(REED), UNAVAILABLE);
    t.ok(log.poisoned.aborted);
    t.match(log.poisoned.reason, { ...UNAVAILABLE, cause: { code: MODIFIED } });
    for (const plant of [FERN, MOSS]) await t.rejects(log.add(plant), UNAVAILABLE);
    t.equal(reports.length, 1, 'it is reported once');
    await log.close();
    t.strictSame(filesIn(dirname(path)), left, 'nothing was written');
  });

  t.test(`in a log that was ${what}, a plant is acknowledged only if it is there`, async (t) => {
    const { log, path } = await openWithFaults(t, {}, { content: logOf([MOSS, IVY]) });
    change(path);
    const loses = what in LOSSES;
    if (loses) await t.rejects(log.add(MOSS), UNAVAILABLE);
    else t.equal(await log.add(MOSS), 'unchanged');
    t.equal(log.poisoned.aborted, loses);
  });
}

t.test('a log whose volume was replaced by a copy is never written to again', async (t) => {
  const path = logAt(t, logOf([MOSS]));
  const { fs, replaceVolume } = replaceableVolume();
  const log = await openLog(fs, path, { report: ignore });
  replaceVolume();
  await t.rejects(log.add(IVY), { ...UNAVAILABLE, message: /replaced/ });
  t.ok(log.poisoned.aborted);
  await log.close();
  t.equal(readFileSync(path, 'utf8'), String(logOf([MOSS])));
});

const STORED = String(logOf([MOSS, IVY]));
const modifications: Record<string, string> = {
  'cut in its name': STORED.slice(0, -20),
  'cut at its newline': STORED.slice(0, -1),
  'cut off': '',
  'overwritten by NUL bytes': STORED.replace(/(?<=\n).*/, (line) => '\0'.repeat(line.length)),
  'replaced by another plant': STORED.replace(/"id":2(.*),"crc32":\d+/, '"id":9$1'),
};

for (const [what, modified] of Object.entries(modifications))
  t.test(`comparing a plant with a line that was ${what} poisons the log`, async (t) => {
    const opened = await openWithFaults(t, {}, { content: Buffer.from(STORED) });
    const { log, path, reports, content } = opened;
    writeFileSync(path, modified);
    const message = /: the (?:line at byte \d+|file) was modified/;
    const compared = [IVY, IVY].map((plant) =>
      t.rejects(log.add(plant), { ...UNAVAILABLE, message }),
    );
    await Promise.all(compared);
    t.ok(log.poisoned.aborted);
    t.equal(reports.length, 1, 'it is reported once');
    await t.rejects(log.add(FERN), UNAVAILABLE);
    await log.close();
    t.equal(content(), modified, 'the file is not changed');
  });
