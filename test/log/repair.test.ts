import {
  appendFileSync,
  chmodSync,
  chownSync,
  copyFileSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';

import t from 'tap';

import { openLog, openPlantLog } from '../../dist/log/log.js';
import { readPlantLog } from '../../dist/log/read.js';
import { repairLog, type Repair } from '../../dist/log/repair.js';
import { FERN, IVY, MOSS, plantsNamed } from '../helpers/plants.js';
import { collect } from '../helpers/stores.js';
import { nodeSystem, type System } from '../../dist/log/system.js';
import { hasty } from './lock-support.js';
import {
  contentOf,
  countOf,
  faultyFileSystem,
  filesIn,
  lineOf,
  LOCKED,
  logAt,
  logOf,
  nameOfKept,
  signed,
  UNAVAILABLE,
} from './support.js';

/** The lines of two plants, and a log with a damaged line. */
const [fern, ivy] = [lineOf(FERN), lineOf(IVY)];
const DAMAGED = `x\n${fern}`;

function repair(path: string, fs = nodeSystem): Promise<Repair | undefined> {
  return repairLog(fs, path);
}

/** The path at which a repair of the log at `path` keeps the old log. */
function oldLogOf(path: string, content = DAMAGED): string {
  return join(dirname(path), nameOfKept('damaged', content));
}

/** What is beside the log at `path` once it is repaired: the old log. */
function keptLog(path: string, content = DAMAGED): Record<string, string> {
  return { [basename(oldLogOf(path, content))]: content };
}

/**
 * A line, and the line that a repair leaves in its place: an empty string if the line is removed.
 */
type Repaired = readonly [before: string, after: string];

const kept = (line: string): Repaired => [line, line];
const removed = (line: string): Repaired => [line, ''];
const isDamaged = ([before, after]: Repaired): boolean =>
  before !== after && `${before}\n` !== after;

const mossOfSameId = lineOf({ ...MOSS, id: FERN.id });
const reed = lineOf({ ...FERN, name: 'reed' });
const crlf = (line: string): string => line.replace('\n', '\r\n');

const REPAIRS: Readonly<Record<string, readonly Repaired[]>> = {
  'a damaged line at the start': [removed('x\n'), kept(fern), kept(ivy)],
  'a damaged line at the end': [kept(fern), kept(ivy), removed('x\n')],
  'several damaged lines': [removed('1\n'), kept(fern), removed('2\n'), removed('3\n'), kept(ivy)],
  'a damaged line and a tail of NUL bytes': [kept(fern), removed('x\n'), removed('\0'.repeat(100))],
  'CR LF and a torn tail': [[crlf(fern), fern], removed('x')],
  'CR LF': [
    [crlf(fern), fern],
    [crlf(ivy), ivy],
  ],
  'CR LF, but for the end': [
    [crlf(fern), fern],
    [ivy.trimEnd(), ivy],
  ],
  'a byte order mark': [[`\xef\xbb\xbf${fern}`, fern], kept(ivy)],
  'no newline at the end': [kept(fern), [ivy.trimEnd(), ivy]],
  'spaces and no newline': [kept(fern), [ivy.replaceAll(',', ', ').trimEnd(), ivy]],
  'other members': [[fern.replace('"tag"', '"price":9,"tag"'), fern], kept(ivy)],
  'no checksum': [[fern.replace(/,"crc32":\d+/, ''), fern], kept(ivy)],
  'other plants than were written': [
    removed(crlf(fern.replace('fern', 'Fern'))),
    [crlf(fern), fern],
    kept(ivy),
    removed(ivy.replace('"id":8', '"id":9')),
    removed('\n'),
    removed(`${fern.trimEnd()}${ivy}`),
  ],
  'an id twice': [kept(reed), removed(fern)],
  'an id twice, and CR LF': [kept(mossOfSameId), removed(crlf(fern))],
  'an id three times': [[crlf(fern), fern], removed(reed), removed(mossOfSameId)],
  'an id of a damaged line': [removed(fern.replace('fern', 'farn')), kept(reed)],
};

for (const [what, lines] of Object.entries(REPAIRS)) {
  const content = lines.map(([before]) => before).join('');

  if (lines.some(isDamaged))
    t.test(`a damaged log is refused by a start, and not changed: ${what}`, async (t) => {
      const path = logAt(t, content);
      const error = { code: 'damaged', message: /: line \d+, at byte \d+: / };
      await t.rejects(openPlantLog(path), error);
      t.strictSame(contentOf(dirname(path)), { 'plants.jsonl': content });
    });

  t.test(`a repair keeps records, writes plants again and removes the rest: ${what}`, async (t) => {
    const path = logAt(t, content);
    const others = lines.filter(([, after]) => after === '').map(([before]) => before);
    const plants = lines.filter(([, after]) => after !== '');
    const rewritten = plants.filter(([before, after]) => before !== after).length;
    const torn = others.find((line) => !line.endsWith('\n'))?.length ?? 0;
    const shortWrites = faultyFileSystem({ 'write 1': { writes: 1 }, 'write 2': { writes: 1 } });
    t.strictSame(await repair(path, shortWrites), {
      plants: plants.length,
      rewritten,
      removed: others.filter((line) => line.endsWith('\n')).length,
      torn,
      keptIn: oldLogOf(path, content),
    });
    t.strictSame(contentOf(dirname(path)), {
      'plants.jsonl': plants.map(([, after]) => after).join(''),
      ...keptLog(path, content),
    });
    t.equal(await repair(path), undefined, 'it is repaired');
  });
}

t.test('a repair that would keep no plant fails, and changes nothing', async (t) => {
  const message = /: a repair would keep no plant, so nothing was changed; /;
  for (const content of [
    '{"id":x\nx\n',
    '{"id":x\n{"id":',
    '{"id":7,"name":7}\n',
    '\0\0\0\0\0\0\n',
  ]) {
    const path = logAt(t, content);
    await t.rejects(repair(path), { ...UNAVAILABLE, message }, content);
    t.strictSame(contentOf(dirname(path)), { 'plants.jsonl': content });
  }
});

t.test('a log with lines of a newer version is not opened, read or repaired', async (t) => {
  const newer = signed('{"id":9,"name":"moss","light":"shade"');
  for (const content of [`${fern}${newer}`, `${fern}${newer}x\n${ivy}`, newer, newer.trimEnd()]) {
    const path = logAt(t, content);
    const line = content.startsWith(fern) ? `line 2, at byte ${fern.length}` : 'line 1, at byte 0';
    const message = `${path}: ${line}: a newer version of plant-store has written it; use that version`;
    await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message });
    await t.rejects(collect(readPlantLog(path)), { ...UNAVAILABLE, message });
    await t.rejects(repair(path), { ...UNAVAILABLE, message });
    t.strictSame(contentOf(dirname(path)), { 'plants.jsonl': content });
  }
});

t.test('a repair of many damaged lines takes few writes', async (t) => {
  const names = Array.from({ length: 300 }, (_, n) => `fern ${n}`.repeat(90));
  const whole = plantsNamed(...names).map(lineOf);
  const damaged = whole.map((line) => line.replace('fern', 'farn'));
  const content = whole.map((line, n) => `${line}${damaged[n]}`).join('');
  const path = logAt(t, content);
  const fs = faultyFileSystem();
  t.match(await repair(path, fs), { plants: 300, removed: 300 });
  t.equal(readFileSync(path, 'latin1'), whole.join(''));
  t.equal(readFileSync(oldLogOf(path, content), 'latin1'), content);
  const writes = countOf(fs, 'write');
  t.ok(writes < 20, `${writes} writes`);
});

t.test('a log without damaged lines is not repaired', async (t) => {
  for (const content of ['', fern, `${fern}{"id":8,"na`, '{"id":8,"na', '\0\0']) {
    const path = logAt(t, content);
    const { ino } = statSync(path);
    t.equal(await repair(path), undefined);
    t.strictSame(contentOf(dirname(path)), { 'plants.jsonl': content });
    t.equal(statSync(path).ino, ino);
  }
  await t.rejects(repair(logAt(t)), { code: 'unavailable', message: /\(ENOENT\)$/ });
});

t.test('no server can open a log while it is being repaired', async (t) => {
  const path = logAt(t, DAMAGED);
  let attempts = 0;
  const fs: System = {
    ...nodeSystem,
    async rename(from, to) {
      if (from.endsWith('.new')) {
        attempts++;
        await t.rejects(openLog(hasty(), path), LOCKED);
      }
      await nodeSystem.rename(from, to);
    },
  };
  t.match(await repair(path, fs), { plants: 1 });
  t.equal(attempts, 1);
});

t.test('a log that was put back after a repair can be repaired again', async (t) => {
  const path = logAt(t, DAMAGED);
  for (const put of [copyFileSync, renameSync, linkSync]) {
    t.match(await repair(path), { plants: 1, keptIn: oldLogOf(path) });
    t.strictSame(contentOf(dirname(path)), { 'plants.jsonl': fern, ...keptLog(path) });
    unlinkSync(path);
    put(oldLogOf(path), path);
  }
});

t.test('a repair does not touch a log that another repair has replaced', async (t) => {
  const path = logAt(t, DAMAGED);
  // All of this happens after the second repair has opened the damaged file, and before it takes
  // the lock.
  const fs: System = {
    ...nodeSystem,
    async realpath(given) {
      if (given !== path) return nodeSystem.realpath(given);
      t.match(await repair(path), { removed: 1 });
      const log = await openPlantLog(path);
      t.equal(await log.add(IVY), 'created');
      await log.close();
      return nodeSystem.realpath(given);
    },
  };
  await t.rejects(repair(path, fs), { ...UNAVAILABLE, message: /modified/ });
  t.equal(readFileSync(path, 'utf8'), logOf([FERN, IVY]).toString());
});

/** What may happen to a log while it is repaired, and its content afterwards. */
const CHANGES: Record<string, { change: (path: string) => void; after: string }> = {
  'a line is added to it': {
    change: (path) => appendFileSync(path, ivy, 'latin1'),
    after: DAMAGED + ivy,
  },
  'it is cut': { change: (path) => truncateSync(path, 5), after: DAMAGED.slice(0, 5) },
};

for (const [what, { change, after }] of Object.entries(CHANGES))
  t.test(`a repair does not touch the log if ${what} meanwhile`, async (t) => {
    const path = logAt(t, DAMAGED);
    // The change happens once the repair has read all of the log.
    const fs: System = {
      ...nodeSystem,
      async link(existing, name) {
        change(path);
        await nodeSystem.link(existing, name);
      },
    };
    const message = /modified, replaced or removed/;
    await t.rejects(repair(path, fs), { ...UNAVAILABLE, message });
    const expected = { 'plants.jsonl': after, [basename(oldLogOf(path))]: after };
    t.strictSame(contentOf(dirname(path)), expected, 'the log has two names, and no copy is left');
  });

const IS_ROOT = process.getuid?.() === 0;

/** Gives a log another mode and, as only root can, another owner and group. */
function giveAway(path: string, mode: number, uid = 12_345, gid = 23_456): object {
  chmodSync(path, mode);
  if (IS_ROOT) chownSync(path, uid, gid);
  const { uid: owner, gid: group } = statSync(path);
  return { mode: 0o100_000 + mode, uid: owner, gid: group };
}

t.test('a repair keeps the mode, the owner and the group of the log', async (t) => {
  for (const [mode, uid, gid] of [
    [0o400, 0, 23_456],
    [0o666, 12_345, 0],
  ] as const) {
    const path = logAt(t, DAMAGED);
    const given = giveAway(path, mode, uid, gid);
    await repair(path);
    t.match(statSync(path), given);
    t.match(statSync(oldLogOf(path)), { ...given, nlink: 1 });
  }
});

t.test('a symbolic link to a log stays a link, and its target is repaired', async (t) => {
  const path = logAt(t, DAMAGED);
  const link = join(dirname(path), 'links', 'log');
  mkdirSync(dirname(link));
  symlinkSync(path, link);
  t.match(await repair(link), { keptIn: oldLogOf(path) });
  t.equal(readFileSync(path, 'latin1'), fern);
  t.strictSame(readdirSync(dirname(link)), ['log']);
});

t.test('the log is either unchanged or completely repaired if an operation fails', async (t) => {
  const torn = '{"id":';
  const before = ['x1\n', fern, 'x2\n', ivy, torn].join('');
  const after = fern + ivy;
  for (let nth = 1; ; nth++) {
    const path = logAt(t, before);
    const given = giveAway(path, 0o640);
    const old = keptLog(path, before);
    const fs = faultyFileSystem({ [nth]: { fails: 'EIO' } });
    const outcome = await repair(path, fs).catch((error: unknown) => error);
    const about = `operation ${nth}, ${fs.operations[nth - 1] ?? 'none'}`;
    if (outcome instanceof Error) t.match(outcome, UNAVAILABLE, about);

    // A lock that could not be removed is removed by the next process that locks the log.
    const left = filesIn(dirname(path));
    const allowed = [
      { 'plants.jsonl': before },
      { 'plants.jsonl': before, ...old },
      { 'plants.jsonl': after, ...old },
    ];
    const isAllowed = allowed.some((each) => isDeepStrictEqual(left, each));
    const { mode, uid, gid } = statSync(path);
    const found = { openFiles: fs.openFiles, isAllowed, mode, uid, gid };
    t.strictSame(found, { openFiles: 0, isAllowed: true, ...given }, about);

    await repair(path);
    t.strictSame(filesIn(dirname(path)), { 'plants.jsonl': after, ...old }, about);
    if (fs.operations.length < nth) {
      t.not(outcome, undefined, 'it is repaired if nothing fails');
      break;
    }
  }
});
