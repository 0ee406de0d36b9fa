import {
  appendFileSync,
  chmodSync,
  chownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  truncateSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';

import t from 'tap';

import { nodeSystem, type System } from '../../dist/log/files.js';
import { openLog, openPlantLog } from '../../dist/log/log.js';
import { encodeRecord } from '../../dist/log/record.js';
import { repairLog, type Repair } from '../../dist/log/repair.js';
import { filesIn } from '../faults/support.js';
import { hasty } from './lock-support.js';
import {
  contentOf,
  countOf,
  faultyFileSystem,
  FERN,
  ignore,
  IVY,
  LOCKED,
  logAt,
  logOf,
  MOSS,
  nameOfKept,
  plantsNamed,
  replaceableVolume,
  UNAVAILABLE,
  type Fault,
} from './support.js';

/** A log with a damaged line, and the same log without it. */
const DAMAGED = `x\n${encodeRecord(FERN)}`;
const REPAIRED = encodeRecord(FERN);

function repair(path: string, fs = nodeSystem): Promise<Repair | undefined> {
  return repairLog(fs, path);
}

/** Where a repair of the log at `path` puts these lines. */
function damagedPathOf(path: string, lines = 'x\n'): string {
  return join(dirname(path), nameOfKept('damaged', lines));
}

/** What is beside the log at `path` once these lines have been moved. */
function movedLines(path: string, lines = 'x\n'): Record<string, string> {
  return { [basename(damagedPathOf(path, lines))]: lines };
}

/** A file system on which something happens once a repair has kept the damaged lines. */
function changingOnceKept(fs: System, change: () => unknown): System {
  return {
    ...fs,
    async rename(from, to) {
      await fs.rename(from, to);
      if (from.endsWith('.damaged.new')) await change();
    },
  };
}

/** The lines of a log: those that begin with a cross are damaged or torn. */
const DAMAGED_LOGS = [
  'x fern ivy',
  'fern ivy x',
  'fern x1 x2 x3 ivy x4 x5',
  'x1 fern x2 ivy x3 oak x4',
  'x',
  'x1 x2 x3',
  'x fern x',
  'x fern xtorn',
  'fern xtorn',
  'x xtorn',
];

t.test('a repair moves the damaged lines and the torn one, and no others', async (t) => {
  for (const names of DAMAGED_LOGS) {
    const lines = names.split(' ').map((name, n) => {
      if (name.startsWith('x')) return `{"id":${name}${name === 'xtorn' ? '' : '\n'}`;
      return encodeRecord({ id: BigInt(n), name });
    });
    const isDamaged = (line: string): boolean => line.startsWith('{"id":x');
    const damaged = lines.filter(isDamaged).join('');
    const kept = lines.filter((line) => !isDamaged(line));
    const path = logAt(t, lines.join(''));
    const shortWrites = { 'write 1': { writes: 1 }, 'write 2': { writes: 1 } };
    const moved = lines.length - kept.length;
    const movedTo = damagedPathOf(path, damaged);
    const expected = { plants: kept.length, rewritten: 0, moved, movedTo };
    t.strictSame(await repair(path, faultyFileSystem(shortWrites)), expected, names);
    const files = { 'plants.jsonl': kept.join(''), ...movedLines(path, damaged) };
    t.strictSame(contentOf(dirname(path)), files, names);
    const log = await openPlantLog(path, { report: ignore });
    t.equal(log.size, kept.length, 'it opens with all undamaged plants');
    await log.close();
  }
});

t.test('a repair of many damaged lines takes few writes', async (t) => {
  const names = Array.from({ length: 3_000 }, (_, n) => `fern ${n}`.repeat(90));
  const whole = plantsNamed(...names).map(encodeRecord);
  const damaged = whole.map((line) => line.replace('fern', 'farn'));
  const path = logAt(t, whole.map((line, n) => `${line}${damaged[n]}`).join(''));
  const fs = faultyFileSystem();
  t.match(await repair(path, fs), { plants: 3_000, moved: 3_000 });
  t.equal(readFileSync(path, 'utf8'), whole.join(''));
  t.equal(readFileSync(damagedPathOf(path, damaged.join('')), 'utf8'), damaged.join(''));
  const writes = countOf(fs, 'write');
  t.ok(writes < 100, `${writes} writes`);
});

t.test('a repair writes lines that hold a plant again as records', async (t) => {
  const [fern, ivy] = [FERN, IVY].map(encodeRecord) as [string, string];
  const spaced = ivy.replaceAll(',', ', ');
  const edited: readonly (readonly [content: string, rewritten: number])[] = [
    [(fern + ivy).replaceAll('\n', '\r\n'), 2],
    [`\ufeff${fern}${ivy}`, 1],
    [fern + ivy.trimEnd(), 1],
    [`${fern.trimEnd()}\r\n${ivy.trimEnd()}`, 2],
    [fern + spaced.trimEnd(), 1],
    [fern.replace(/^\{("id":\d+),(.*)\}/, '{$2,$1}') + ivy, 1],
    [fern + ivy.replace(/,"crc32":\d+/, ' ').replace('v', '\\u0076'), 1],
  ];
  for (const [content, rewritten] of edited) {
    const path = logAt(t, content);
    const expected = { plants: 2, rewritten, moved: 0, movedTo: undefined };
    t.strictSame(await repair(path), expected, content);
    t.strictSame(contentOf(dirname(path)), { 'plants.jsonl': fern + ivy });
    t.equal(await repair(path), undefined, 'it is repaired');
  }
});

t.test('a repair moves lines that hold another plant than was written', async (t) => {
  const [fern, ivy] = [FERN, IVY].map(encodeRecord) as [string, string];
  const edited = fern.replace('fern', 'Fern').replace('\n', '\r\n');
  const moved = [edited, ivy.replace(/"id":\d+/, '"id":9'), '\n', `${fern.trimEnd()}${ivy}`];
  const content = [edited, fern.replace('\n', '\r\n'), ivy, ...moved.slice(1)].join('');
  const path = logAt(t, content);
  const movedTo = damagedPathOf(path, moved.join(''));
  t.strictSame(await repair(path), { plants: 2, rewritten: 1, moved: moved.length, movedTo });
  t.strictSame(contentOf(dirname(path)), {
    'plants.jsonl': fern + ivy,
    ...movedLines(path, moved.join('')),
  });
});

t.test('of lines with one id, the first is kept', async (t) => {
  const fern = encodeRecord(FERN);
  const moss = encodeRecord({ ...MOSS, id: FERN.id });
  const crlf = fern.replace('\n', '\r\n');
  const byHand = '{"id":1,"name":"reed"}\n';
  const rows: readonly (readonly [lines: readonly string[], kept: string])[] = [
    [[byHand, fern], byHand],
    [[fern, byHand, moss], fern],
    [[crlf, moss], fern],
    [[fern.replace('fern', 'farn'), byHand], byHand],
  ];
  for (const [lines, kept] of rows)
    for (const before of ['', encodeRecord(IVY)]) {
      const path = logAt(t, before + lines.join(''));
      await t.rejects(openPlantLog(path), { code: 'damaged' }, 'a start refuses all of them');
      t.match(await repair(path), { plants: before === '' ? 1 : 2, moved: lines.length - 1 });
      t.equal(readFileSync(path, 'utf8'), before + kept, lines.join(''));
    }
});

t.test('a log that is missing is not repaired, and not created', async (t) => {
  const path = logAt(t);
  await t.rejects(repair(path), { ...UNAVAILABLE, message: /plants\.jsonl: .*ENOENT/ });
  t.strictSame(readdirSync(dirname(path)), []);
});

t.test('a log without damaged lines is not repaired', async (t) => {
  for (const content of ['', REPAIRED]) {
    const path = logAt(t, content);
    const { ino } = statSync(path);
    t.equal(await repair(path), undefined);
    t.strictSame(contentOf(dirname(path)), { 'plants.jsonl': content });
    t.equal(statSync(path).ino, ino);
  }
});

t.test('no server can open a log while it is being repaired', async (t) => {
  const path = logAt(t, DAMAGED);
  let attempts = 0;
  const fs: System = {
    ...nodeSystem,
    async rename(from, to) {
      if (from.endsWith('.new') && !from.includes('.plant-store')) {
        attempts++;
        await t.rejects(openLog(hasty(), path), LOCKED);
      }
      await nodeSystem.rename(from, to);
    },
  };
  t.match(await repair(path, fs), { plants: 1 });
  t.equal(attempts, 2);
});

t.test('a repair does not touch a log that another repair has replaced', async (t) => {
  const path = logAt(t, DAMAGED);
  // The second repair has opened the damaged file; before it takes the lock, all of this happens.
  const fs: System = {
    ...nodeSystem,
    async realpath(given) {
      t.match(await repair(path), { moved: 1 });
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
const CHANGES: Record<string, { change?: (path: string) => void; after: string }> = {
  'a line is added to it': {
    change: (path) => appendFileSync(path, encodeRecord(IVY)),
    after: DAMAGED + encodeRecord(IVY),
  },
  'it is cut': { change: (path) => truncateSync(path, 5), after: DAMAGED.slice(0, 5) },
  'its volume is replaced by a copy': { after: DAMAGED },
};

for (const [what, { change, after }] of Object.entries(CHANGES))
  t.test(`a repair does not touch the log if ${what} meanwhile`, async (t) => {
    const path = logAt(t, DAMAGED);
    const { fs, replaceVolume } = replaceableVolume();
    const changing = changingOnceKept(fs, () => (change ? change(path) : replaceVolume()));
    await t.rejects(repair(path, changing), {
      ...UNAVAILABLE,
      message: /modified or replaced|truncated/,
    });
    const expected = { 'plants.jsonl': after, ...movedLines(path) };
    t.strictSame(contentOf(dirname(path)), expected, 'no other file is left');
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
    [0o640, 12_345, 23_456],
    [0o400, 0, 23_456],
    [0o666, 12_345, 0],
  ] as const) {
    const path = logAt(t, DAMAGED);
    const given = giveAway(path, mode, uid, gid);
    await repair(path);
    t.match(statSync(path), given);
  }
});

t.test('a symbolic link to a log stays a link, and its target is repaired', async (t) => {
  const path = logAt(t, DAMAGED);
  const link = join(dirname(path), 'links', 'log');
  mkdirSync(dirname(link));
  symlinkSync(path, link);
  t.match(await repair(link), { movedTo: damagedPathOf(path) });
  t.equal(readFileSync(path, 'utf8'), REPAIRED);
  t.strictSame(readdirSync(dirname(link)), ['log']);
});

const FAILURES: Record<string, (nth: number) => Record<number, Fault>> = {
  'one file operation': (nth) => ({ [nth]: { fails: 'EIO' } }),
  'every file operation after some point': (nth) =>
    Object.fromEntries(Array.from({ length: 100 }, (_, n) => [nth + n, { fails: 'EIO' }])),
};

for (const [what, faultsFrom] of Object.entries(FAILURES))
  t.test(`the log is either unchanged or completely repaired if ${what} fails`, async (t) => {
    const [fern, ivy, torn] = [encodeRecord(FERN), encodeRecord(IVY), '{"id":'];
    const before = ['x1\n', fern, 'x2\n', ivy, torn].join('');
    const after = fern + ivy;
    for (let nth = 1; ; nth++) {
      const path = logAt(t, before);
      const given = giveAway(path, 0o640);
      const moved = movedLines(path, `x1\nx2\n${torn}`);
      const fs = faultyFileSystem(faultsFrom(nth));
      const outcome = await repair(path, fs).catch((error: unknown) => error);
      const about = `operation ${nth}, ${fs.operations[nth - 1] ?? 'none'}`;
      if (outcome instanceof Error) t.match(outcome, UNAVAILABLE, about);
      t.equal(fs.openFiles, 0, `${about}: files are closed`);

      // A lock that could not be removed is removed by the next one. So is an unfinished file.
      const left = filesIn(dirname(path));
      if (what.startsWith('every'))
        for (const kind of ['damaged', 'repair'])
          Reflect.deleteProperty(left, `plants.jsonl.${kind}.new`);
      const allowed = [
        { 'plants.jsonl': before },
        { 'plants.jsonl': before, ...moved },
        { 'plants.jsonl': after, ...moved },
      ];
      t.ok(
        allowed.some((each) => isDeepStrictEqual(left, each)),
        about,
      );

      t.match(statSync(path), given, about);

      await repair(path);
      t.strictSame(filesIn(dirname(path)), { 'plants.jsonl': after, ...moved }, about);
      if (fs.operations.length < nth) {
        t.not(outcome, undefined, 'it is repaired if nothing fails');
        break;
      }
    }
  });
