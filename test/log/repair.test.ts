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
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { crc32 } from 'node:zlib';

import t, { type Test } from 'tap';

import { nodeSystem, type System } from '../../dist/log/system.js';
import { openPlantLog } from '../../dist/log/log.js';
import { encodeRecord, MAX_RECORD_BYTES } from '../../dist/log/record.js';
import { repairLog } from '../../dist/log/repair.js';
import type { NewPlant } from '../../dist/plant.js';
import { exactly } from '../exactly.js';
import { filesIn } from '../faults/support.js';
import {
  createGate,
  faultyFileSystem,
  isPending,
  plantsNamed,
  replaceableVolume,
  systemError,
  type Fault,
} from './support.js';

const FERN: NewPlant = { id: 7n, name: 'Boston fern', tag: 'indoor' };
const UNAVAILABLE = { name: 'PlantStoreError', code: 'unavailable' };
const LOCKED = { name: 'PlantStoreError', code: 'locked' };
const IS_ROOT = process.getuid?.() === 0;

const noProgress = (): void => undefined;

/** The path of a log with some content, in a folder of its own. */
function logAt(t: Test, content: string | Buffer): string {
  return join(t.testdir({ 'plants.jsonl': content }), 'plants.jsonl');
}

/** The lines of a log for these plants. */
function linesOf(...plants: readonly NewPlant[]): string[] {
  return plants.map(encodeRecord);
}

/** What is in a folder: the content of every file. */
function contentOf(folder: string): Record<string, string> {
  const names = readdirSync(folder).sort();
  return Object.fromEntries(
    names.map((name) => [name, readFileSync(join(folder, name), 'latin1')]),
  );
}

/** Where a repair of the log at `path` puts these lines. */
function damagedPathOf(path: string, ...lines: readonly string[]): string {
  return `${path}.damaged-${crc32(lines.join('')).toString(16)}`;
}

t.test('a log that is missing is not repaired, and not created', async (t) => {
  const folder = t.testdir();
  const missing = join(folder, 'missing.jsonl');
  const error = { ...UNAVAILABLE, message: /missing\.jsonl: .*ENOENT/ };
  await t.rejects(repairLog(nodeSystem, missing, noProgress), error);
  t.strictSame(readdirSync(folder), []);
});

/** Lines of which the damaged ones begin with a cross. */
const DAMAGED_LOGS: Record<string, readonly string[]> = {
  'the first line': ['x', 'fern', 'ivy'],
  'the last line': ['fern', 'ivy', 'x'],
  'a line between others': ['fern', 'x', 'ivy'],
  'consecutive lines': ['fern', 'x1', 'x2', 'x3', 'ivy', 'x4', 'x5'],
  'every second line': ['x1', 'fern', 'x2', 'ivy', 'x3', 'oak', 'x4'],
  'the only line': ['x'],
  'all lines': ['x1', 'x2', 'x3'],
  'two equal lines': ['x', 'fern', 'x'],
};

for (const [what, names] of Object.entries(DAMAGED_LOGS))
  t.test(`a repair moves the damaged lines and no others: ${what}`, async (t) => {
    const lines = names.map((name, n) =>
      name.startsWith('x') ? `${name}\n` : encodeRecord({ id: BigInt(n), name }),
    );
    const damaged = lines.filter((line) => line.startsWith('x'));
    const whole = lines.filter((line) => !line.startsWith('x'));
    const path = logAt(t, lines.join(''));
    const damagedPath = damagedPathOf(path, ...damaged);
    t.strictSame(await repairLog(nodeSystem, path, noProgress), {
      plants: whole.length,
      damagedLines: damaged.length,
      bytes: lines.join('').length,
      tornBytes: 0,
      damagedPath,
    });
    t.strictSame(contentOf(dirname(path)), {
      'plants.jsonl': whole.join(''),
      [basename(damagedPath)]: damaged.join(''),
    });

    const log = await openPlantLog(path);
    t.equal(log.size, whole.length, 'it opens with all undamaged plants');
    await log.close();
    t.equal(readFileSync(path, 'utf8'), whole.join(''));
  });

t.test('a repair of many damaged lines takes few writes', async (t) => {
  const plants = plantsNamed(...Array.from({ length: 3_000 }, (_, n) => `fern ${n}`.repeat(90)));
  const whole = linesOf(...plants);
  const damaged = whole.map((line) => line.replace('fern', 'farn'));
  const path = logAt(t, whole.map((line, n) => `${line}${damaged[n]}`).join(''));
  const fs = faultyFileSystem();
  const repair = await repairLog(fs, path, noProgress);
  t.match(repair, { plants: 3_000, damagedLines: 3_000 });
  t.ok(readFileSync(path).equals(Buffer.from(whole.join(''))));
  t.ok(readFileSync(damagedPathOf(path, ...damaged)).equals(Buffer.from(damaged.join(''))));
  const mebibytes = whole.join('').length / 2 ** 20;
  const writes = fs.operations.filter((each) => each === 'write').length;
  t.ok(mebibytes > 2);
  t.equal(writes, 2 * Math.ceil(mebibytes));
});

t.test('a repair completes a short write', async (t) => {
  const path = logAt(t, ['x\n', encodeRecord(FERN)].join(''));
  const fs = faultyFileSystem({ 'write 1': { writes: 1 }, 'write 2': { writes: 1 } });
  t.match(await repairLog(fs, path, noProgress), { plants: 1, damagedLines: 1 });
  t.strictSame(contentOf(dirname(path)), {
    'plants.jsonl': encodeRecord(FERN),
    [basename(damagedPathOf(path, 'x\n'))]: 'x\n',
  });
});

t.test('a repair keeps a torn tail, which is cut off when the log is opened', async (t) => {
  const [fern = '', ivy = ''] = linesOf(...plantsNamed('fern', 'ivy'));
  const torn = ivy.slice(0, 20);
  const path = logAt(t, ['x\n', fern, torn].join(''));
  const repair = await repairLog(nodeSystem, path, noProgress);
  t.match(repair, { plants: 1, damagedLines: 1, tornBytes: torn.length });
  t.equal(readFileSync(path, 'utf8'), fern + torn);

  const reports: string[] = [];
  const log = await openPlantLog(path, { report: (message) => reports.push(message) });
  t.equal(log.size, 1);
  await log.close();
  t.equal(readFileSync(path, 'utf8'), fern);
  t.match(reports, exactly(/20 bytes of an incomplete write/));
});

t.test('a log without damaged lines is not repaired', async (t) => {
  for (const content of ['', encodeRecord(FERN), `${encodeRecord(FERN)}{"id":8,"na`]) {
    const path = logAt(t, content);
    const { ino } = statSync(path);
    t.equal(await repairLog(nodeSystem, path, noProgress), undefined);
    t.strictSame(contentOf(dirname(path)), { 'plants.jsonl': content });
    t.equal(statSync(path).ino, ino);
  }
});

t.test('a repair moves a line that is longer than any record', async (t) => {
  const fern = encodeRecord(FERN);
  const path = logAt(t, fern);
  const size = MAX_RECORD_BYTES + 2 ** 20;
  truncateSync(path, size);
  const repaired = await repairLog(nodeSystem, path, noProgress);
  t.equal(readFileSync(path, 'utf8'), fern);
  t.equal(statSync(repaired?.damagedPath ?? '').size, size - fern.length);
});

t.test('no server can open a log while it is being repaired', async (t) => {
  const path = logAt(t, `x\n${encodeRecord(FERN)}`);
  let attempts = 0;
  const fs: System = {
    ...nodeSystem,
    async rename(from, to) {
      if (from.endsWith('.repair.new')) {
        attempts++;
        await t.rejects(openPlantLog(path), LOCKED);
      }
      await nodeSystem.rename(from, to);
    },
  };
  t.match(await repairLog(fs, path, noProgress), { plants: 1 });
  t.equal(attempts, 2);
});

t.test('a repair does not touch a log that another repair has replaced', async (t) => {
  const path = logAt(t, `x\n${encodeRecord(FERN)}`);
  // The second repair has opened the damaged file; before it takes the lock, all of this happens.
  const fs: System = {
    ...nodeSystem,
    async realpath(given) {
      t.match(await repairLog(nodeSystem, path, noProgress), { damagedLines: 1 });
      const log = await openPlantLog(path);
      t.equal(await log.add({ id: 8n, name: 'ivy' }), 'created');
      await log.close();
      return nodeSystem.realpath(given);
    },
  };
  await t.rejects(repairLog(fs, path, noProgress), { ...UNAVAILABLE, message: /modified/ });
  t.equal(readFileSync(path, 'utf8'), linesOf(FERN, { id: 8n, name: 'ivy' }).join(''));
});

t.test('a repair does not touch a log that is modified during the repair', async (t) => {
  const before = `x\n${encodeRecord(FERN)}`;
  const ivy = encodeRecord({ id: 8n, name: 'ivy' });
  const changes: Record<string, [change: (path: string) => void, after: string]> = {
    'somebody adds a line': [(path) => appendFileSync(path, ivy), before + ivy],
    'somebody cuts it': [(path) => truncateSync(path, 5), before.slice(0, 5)],
  };
  for (const [what, [change, after]] of Object.entries(changes)) {
    const path = logAt(t, before);
    const fs: System = {
      ...nodeSystem,
      async rename(from, to) {
        await nodeSystem.rename(from, to);
        if (from.endsWith('.repair.new')) change(path);
      },
    };
    await t.rejects(repairLog(fs, path, noProgress), UNAVAILABLE, what);
    t.strictSame(
      contentOf(dirname(path)),
      { 'plants.jsonl': after, [basename(damagedPathOf(path, 'x\n'))]: 'x\n' },
      'no other file is left',
    );
  }
});

t.test('a repair leaves a log alone whose volume is replaced by a copy meanwhile', async (t) => {
  const path = logAt(t, `x\n${encodeRecord(FERN)}`);
  const { fs, replaceVolume } = replaceableVolume();
  const replaced: System = {
    ...fs,
    async rename(from, to) {
      await fs.rename(from, to);
      if (from.endsWith('.repair.new')) replaceVolume();
    },
  };
  await t.rejects(repairLog(replaced, path, noProgress), { ...UNAVAILABLE, message: /replaced/ });
  t.equal(readFileSync(path, 'utf8'), `x\n${encodeRecord(FERN)}`);
});

t.test('a repair keeps the mode of the log', async (t) => {
  for (const mode of [0o600, 0o640, 0o644, 0o400, 0o660, 0o666]) {
    const path = logAt(t, `x\n${encodeRecord(FERN)}`);
    chmodSync(path, mode);
    const repair = await repairLog(nodeSystem, path, noProgress);
    for (const each of [path, repair?.damagedPath ?? ''])
      t.equal(statSync(each).mode & 0o777, mode, `${basename(each)}: ${mode.toString(8)}`);
  }
});

const NEEDS_ROOT = { skip: IS_ROOT ? false : 'only root can give files away' };
t.test('a repair keeps the owner and the group of the log', NEEDS_ROOT, async (t) => {
  for (const [uid, gid] of [
    [12_345, 23_456],
    [0, 23_456],
    [12_345, 0],
  ] as const) {
    const path = logAt(t, `x\n${encodeRecord(FERN)}`);
    chownSync(path, uid, gid);
    const repair = await repairLog(nodeSystem, path, noProgress);
    for (const each of [path, repair?.damagedPath ?? ''])
      t.match(statSync(each), { uid, gid }, basename(each));
  }
});

t.test('both files of a repair get the owner of the log', async (t) => {
  const path = logAt(t, `x\n${encodeRecord(FERN)}`);
  const { uid, gid } = statSync(path);
  const given: number[][] = [];
  const fs: System = {
    ...nodeSystem,
    async open(name, flags, mode) {
      const file = await nodeSystem.open(name, flags, mode);
      if (!name.endsWith('.repair.new')) return file;
      const stat = async (): Promise<object> => ({ uid: uid + 1, gid });
      const chown = async (...owner: number[]): Promise<void> => void given.push(owner);
      return Object.assign(file, { stat, chown });
    },
  };
  t.match(await repairLog(fs, path, noProgress), { damagedLines: 1 });
  t.strictSame(given, [
    [uid, gid],
    [uid, gid],
  ]);
});

t.test('a repair fails if a file cannot get the owner or the mode of the log', async (t) => {
  const before = `x\n${encodeRecord(FERN)}`;
  for (const kind of ['chown', 'chmod'])
    for (const nth of [1, 2]) {
      const path = logAt(t, before);
      const faulty = faultyFileSystem();
      let created = 0;
      // A new file belongs to another user, and the umask has removed bits of its mode.
      const fs: System = {
        ...faulty,
        async open(name, flags, mode) {
          const file = await faulty.open(name, flags, mode);
          if (!name.endsWith('.repair.new')) return file;
          const { uid, gid } = await file.stat();
          const stat = async (): Promise<object> => ({ uid: uid + 1, gid, mode: 0o100400 });
          const denied = async (): Promise<never> => {
            throw systemError('EPERM', kind);
          };
          return Object.assign(file, { stat, ...(++created === nth && { [kind]: denied }) });
        },
      };
      const outcome = repairLog(fs, path, noProgress);
      await t.rejects(outcome, { ...UNAVAILABLE, message: /EPERM/ }, `${kind} ${nth}`);
      const { 'plants.jsonl': log, ...others } = contentOf(dirname(path));
      t.equal(log, before, 'the log is unchanged');
      const moved = { [basename(damagedPathOf(path, 'x\n'))]: 'x\n' };
      t.strictSame(others, nth === 1 ? {} : moved, 'no unfinished file is left');
      t.equal(faulty.openFiles, 0);
    }
});

t.test('a repair waits for each of its file operations', async (t) => {
  const before = `x\n${encodeRecord(FERN)}`;
  for (let nth = 1; ; nth++) {
    const path = logAt(t, before);
    writeFileSync(`${path}.repair.new`, 'of an interrupted repair');
    const gate = createGate();
    const fs = faultyFileSystem({ [nth]: { hangs: gate } });
    const repairing = repairLog(fs, path, noProgress);
    await Promise.race([gate.reached, repairing]);
    const kind = fs.operations[nth - 1];
    if (kind === undefined) break;
    if (kind !== 'statSync') {
      t.ok(await isPending(repairing), `${kind}, operation ${nth}`);
      const later = fs.operations.slice(nth).filter((each) => !(kind === 'read' && each === kind));
      t.strictSame(later, [], 'no operation but reads begins before it has ended');
    }
    gate.open();
    t.match(await repairing, { damagedLines: 1 });
  }
});

t.test('a repair that fails waits until its unfinished file is removed', async (t) => {
  const path = logAt(t, `x\n${encodeRecord(FERN)}`);
  const gate = createGate();
  // The first unlink is for the file of an interrupted repair.
  const fs = faultyFileSystem({ 'write 1': { fails: 'ENOSPC' }, 'unlink 2': { hangs: gate } });
  const repairing = repairLog(fs, path, noProgress);
  await gate.reached;
  t.ok(await isPending(repairing));
  gate.open();
  await t.rejects(repairing, UNAVAILABLE);
  t.strictSame(readdirSync(dirname(path)), ['plants.jsonl']);
});

t.test('a symbolic link to a log stays a link, and its target is repaired', async (t) => {
  const path = logAt(t, `x\n${encodeRecord(FERN)}`);
  mkdirSync(join(dirname(path), 'links'));
  const link = join(dirname(path), 'links', 'log');
  symlinkSync(path, link);
  t.match(await repairLog(nodeSystem, link, noProgress), {
    damagedPath: damagedPathOf(path, 'x\n'),
  });
  t.equal(readFileSync(path, 'utf8'), encodeRecord(FERN));
  t.strictSame(readdirSync(dirname(link)), ['log']);
});

t.test('a repair removes the files and links that an interrupted repair has left', async (t) => {
  const path = logAt(t, `x\n${encodeRecord(FERN)}`);
  const other = join(dirname(path), 'other');
  writeFileSync(other, 'not the log');
  symlinkSync(other, `${path}.repair.new`);
  t.match(await repairLog(nodeSystem, path, noProgress), { damagedLines: 1 });
  t.strictSame(contentOf(dirname(path)), {
    other: 'not the log',
    'plants.jsonl': encodeRecord(FERN),
    [basename(damagedPathOf(path, 'x\n'))]: 'x\n',
  });
});

t.test('a repair does not replace what was moved aside earlier', async (t) => {
  const path = logAt(t, `x\n${encodeRecord(FERN)}`);
  const damagedPath = damagedPathOf(path, 'x\n');
  writeFileSync(damagedPath, 'other lines with the same checksum\n');
  t.match(await repairLog(nodeSystem, path, noProgress), { damagedPath: `${damagedPath}-2` });
  t.strictSame(contentOf(dirname(path)), {
    'plants.jsonl': encodeRecord(FERN),
    [basename(damagedPath)]: 'other lines with the same checksum\n',
    [`${basename(damagedPath)}-2`]: 'x\n',
  });
});

t.test('a repair moves the same lines twice to the same file', async (t) => {
  const path = logAt(t, `x\n${encodeRecord(FERN)}`);
  const first = await repairLog(nodeSystem, path, noProgress);
  appendFileSync(path, 'x\n');
  t.strictSame(await repairLog(nodeSystem, path, noProgress), {
    ...first,
    damagedPath: damagedPathOf(path, 'x\n'),
  });
  t.strictSame(readdirSync(dirname(path)).toSorted(), [
    'plants.jsonl',
    basename(damagedPathOf(path, 'x\n')),
  ]);
});

const FAILURES: Record<string, (nth: number) => Record<number, Fault>> = {
  'one file operation': (nth) => ({ [nth]: { fails: 'EIO' } }),
  'every file operation after some point': (nth) =>
    Object.fromEntries(Array.from({ length: 100 }, (_, i) => [nth + i, { fails: 'EIO' }])),
  'one operation, with ENOSPC and after a partial write,': (nth) => ({
    [nth]: { fails: 'ENOSPC', writes: 3 },
  }),
};

for (const [what, faultsFrom] of Object.entries(FAILURES))
  t.test(`the log is either unchanged or completely repaired if ${what} fails`, async (t) => {
    const [fern = '', ivy = ''] = linesOf(...plantsNamed('fern', 'ivy'));
    const before = ['x1\n', fern, 'x2\n', ivy, '{"id":'].join('');
    const after = [fern, ivy, '{"id":'].join('');
    const damaged = 'x1\nx2\n';
    for (let nth = 1; ; nth++) {
      const path = logAt(t, before);
      const damagedName = basename(damagedPathOf(path, damaged));
      const fs = faultyFileSystem(faultsFrom(nth));
      const outcome = await repairLog(fs, path, noProgress).catch((error: unknown) => error);
      const about = `operation ${nth}, ${fs.operations[nth - 1] ?? 'none'}`;
      if (outcome instanceof Error) t.match(outcome, { ...UNAVAILABLE }, about);

      // A lock that could not be removed is removed by the next one.
      const { 'plants.jsonl': left, [damagedName]: moved, ...others } = filesIn(dirname(path));
      t.ok(left === before || left === after, `${about}: the content of the log`);
      t.ok(
        moved === damaged || (moved === undefined && left === before),
        `${about}: the damaged lines`,
      );
      const mayLeaveFiles = what.startsWith('every');
      t.strictSame(mayLeaveFiles ? {} : others, {}, `${about}: other files`);
      t.equal(fs.openFiles, 0, `${about}: files are closed`);

      await repairLog(nodeSystem, path, noProgress);
      t.strictSame(
        filesIn(dirname(path)),
        { 'plants.jsonl': after, [damagedName]: damaged },
        about,
      );
      if (fs.operations.length < nth) {
        t.not(outcome, undefined, 'it is repaired if nothing fails');
        break;
      }
    }
  });
