import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  copyFileSync,
  existsSync,
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
import { setImmediate as nextTurn } from 'node:timers/promises';

import t from 'tap';

import { MODIFIED } from '../../dist/log/errors.js';
import { openLog, openPlantLog, type PlantLog } from '../../dist/log/log.js';
import { readPlantLog } from '../../dist/log/read.js';
import { verifyLog } from '../../dist/log/read.js';
import { encodeRecord } from '../../dist/log/record.js';
import { repairLog } from '../../dist/log/repair.js';
import { nodeSystem, type System } from '../../dist/log/system.js';
import { exactly } from '../helpers/exactly.js';
import { FERN, IVY, MOSS, REED } from '../helpers/plants.js';
import { collect } from '../helpers/stores.js';
import { hasty } from './lock-support.js';
import {
  failNext,
  faultyFileSystem,
  filesIn,
  holdNext,
  ignore,
  isPending,
  LOCKED,
  logAt,
  logOf,
  openWithFaults,
  UNAVAILABLE,
} from './support.js';

/* What every store promises is checked for the log by store-contract.test.ts. */

const noProc = existsSync('/proc/self/fd') ? false : 'needs /proc';

// The first test: the log of another one might close its socket meanwhile.
t.test('a log keeps no process alive, and leaves no descriptor', { skip: noProc }, async (t) => {
  const path = logAt(t, '');
  const { ino } = statSync(path);
  const alive = () => process.getActiveResourcesInfo().filter((each) => /Timeout|Pipe/.test(each));
  /** How many descriptors are of sockets, or of the log. */
  const descriptors = () =>
    readdirSync('/proc/self/fd')
      .map((name) => statSync(`/proc/self/fd/${name}`, { throwIfNoEntry: false }))
      .filter((stats) => stats && (stats.isSocket() || stats.ino === ino)).length;
  const [othersAlive, otherDescriptors] = [alive(), descriptors()];
  const log = await openPlantLog(path);
  await log.add(FERN);
  t.strictSame(await collect(readPlantLog(log.path)), [FERN]);
  t.strictSame(alive(), othersAlive);
  t.equal(descriptors(), otherDescriptors + 2);
  await log.close();
  // The socket of the lock is closed in a later turn.
  for (let turns = 0; turns < 10; turns++) await nextTurn();
  t.equal(descriptors(), otherDescriptors);
});

t.test('a log is opened without a synchronous call, which a hung disk would block', async (t) => {
  let calls = 0;
  const statSync: System['statSync'] = (...args) => {
    calls++;
    return nodeSystem.statSync(...args);
  };
  const path = join(t.testdir(), 'data', 'plants.jsonl');
  const log = await openLog({ ...nodeSystem, statSync }, path);
  t.equal(calls, 0);
  await log.close();
});

t.test('a missing log and its folder are created for the owner only', async (t) => {
  const path = join(t.testdir(), 'data', 'plants.jsonl');
  const log = await openPlantLog(path);
  t.equal(log.path, path);
  t.equal(log.size, 0);
  t.equal(await log.add(FERN), 'created');
  t.equal(log.size, 1);
  await log.close();
  t.equal(readFileSync(path, 'utf8'), encodeRecord(FERN));
  t.equal(statSync(path).mode & 0o777, 0o600);
  t.strictSame(readdirSync(dirname(path)), ['plants.jsonl'], 'nothing else is left');
});

t.test('a log refuses plants as soon as close is called', async (t) => {
  const log = await openPlantLog(logAt(t));
  await log.add(FERN);
  const closing = log.close();
  await t.rejects(log.add(IVY), UNAVAILABLE);
  await t.rejects(log.add(FERN), UNAVAILABLE, 'also one that is stored');
  await t.rejects(log.check(), UNAVAILABLE);
  t.equal(log.close(), closing);
  await closing;
  t.notOk(log.poisoned.aborted);
});

t.test('a log whose file cannot be closed is unlocked nevertheless', async (t) => {
  const fs = faultyFileSystem();
  const log = await openLog(fs, logAt(t));
  failNext(fs, 'close', { fails: 'EIO' });
  await t.rejects(log.close(), { ...UNAVAILABLE, message: `${log.path}: i/o error (EIO)` });
  await (await openPlantLog(log.path)).close();
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
  t.equal(readFileSync(real, 'utf8'), encodeRecord(FERN));
});

/** The real system, which notes each call of a method on an open file: the path of the file, and the arguments. */
function noting(method: 'read' | 'fsync'): { system: System; calls: unknown[][] } {
  const paths: string[] = [];
  const calls: unknown[][] = [];
  const call = nodeSystem[method].bind(nodeSystem) as (...args: unknown[]) => Promise<unknown>;
  const system = {
    ...nodeSystem,
    async open(path: string, flags: number, mode?: number) {
      const descriptor = await nodeSystem.open(path, flags, mode);
      paths[descriptor] = path;
      return descriptor;
    },
    [method](descriptor: number, ...args: unknown[]) {
      calls.push([paths[descriptor], ...args]);
      return call(descriptor, ...args);
    },
  };
  return { system, calls };
}

t.test('opening a log through a link syncs the folder in which its file is', async (t) => {
  const folder = t.testdir({ real: {} });
  const [real, link] = [join(folder, 'real'), join(folder, 'link')];
  symlinkSync(join('real', 'plants.jsonl'), link);
  const { system, calls } = noting('fsync');
  await (await openLog(system, link)).close();
  t.strictSame(calls.slice(-2), [[real], [link]]);
});

t.test('opening a file that cannot be used rejects with unavailable and the reason', async (t) => {
  const folder = t.testdir({ file: '', folder: {} });
  const paths: Record<string, [path: string, message: RegExp]> = {
    'a folder': [join(folder, 'folder'), /folder: .*directory \(EISDIR\)$/],
    'a file as its folder': [join(folder, 'file', 'plants.jsonl'), /plants.jsonl: .*\(ENOTDIR\)$/],
    'a file above its folder': [join(folder, 'file/data/plants.jsonl'), /jsonl: .*\(ENOTDIR\)$/],
    'no folder above its folder': [join(folder, 'no/data/plants.jsonl'), /no: .*\(ENOENT\)$/],
    'a name that is too long': [join(folder, 'x'.repeat(256)), /\(ENAMETOOLONG\)$/],
    'a path that is none': ['\0', /null bytes/],
  };
  for (const [what, [path, message]] of Object.entries(paths))
    await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message }, what);
  t.strictSame(readdirSync(folder).toSorted(), ['file', 'folder'], 'nothing is left');
});

t.test('a path must be a string, and report a function; otherwise no log is created', async (t) => {
  for (const path of [undefined, null, 7, new URL('file:///plants.jsonl')])
    await t.rejects(openPlantLog(path as never), TypeError);
  const path = logAt(t);
  await t.rejects(openPlantLog(path, { report: 'console' as never }), TypeError);
  t.notOk(existsSync(path));
});

t.test('only a regular file can be a log', async (t) => {
  const folder = t.testdir({ link: t.fixture('symlink', '/dev/null') });
  execFileSync('mkfifo', [join(folder, 'pipe')]);
  for (const path of ['/dev/null', join(folder, 'link'), join(folder, 'pipe')])
    await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message: /: it is not a regular file$/ });
  t.strictSame(readdirSync(folder).toSorted(), ['link', 'pipe'], 'nothing is left');
});

const STORED = logOf([MOSS, IVY]);

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

/** The message that names the steps before a marked log is opened again. */
const marked = (path: string): string =>
  `${path}: the file was modified, replaced or removed while it was open; put it back if it was replaced, truncated or removed, check it with the command "verify", and then remove ${path}.modified`;

/** How the change is noticed. */
const NOTICES: Record<string, (log: PlantLog) => Promise<unknown>> = {
  'a plant is added': (log) => log.add(REED),
  'a stored plant is added again': (log) => log.add(MOSS),
  'it is closed': (log) => log.close(),
};

for (const [what, change] of Object.entries({ ...LOSSES, ...ADDITIONS }))
  for (const [when, notice] of Object.entries(NOTICES))
    t.test(`a log that was ${what} while open is marked when ${when}`, async (t) => {
      const { fs, log, path, reports } = await openWithFaults(t, {}, { content: STORED });
      change(path);
      const left = { ...filesIn(dirname(path)), 'plants.jsonl.modified': '' };
      const noticed = await notice(log).catch((error: unknown) => error);
      if (noticed === 'unchanged' && what in ADDITIONS) {
        t.notOk(log.poisoned.aborted, 'the stored plant is there');
        return;
      }
      t.match(log.poisoned.reason, { ...UNAVAILABLE, cause: { code: MODIFIED } });
      if (noticed) t.equal(noticed, log.poisoned.reason);
      for (const plant of [FERN, MOSS]) await t.rejects(log.add(plant), UNAVAILABLE);
      t.match(reports, exactly(/: the (?:file|line at byte 0) was modified/));
      await log.close();
      t.equal(fs.openFiles, 0);
      await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message: marked(path) });
      t.strictSame(filesIn(dirname(path)), left, 'nothing else was written');
    });

t.test('a marked log can be verified, repaired and read, but not opened', async (t) => {
  const path = logAt(t, `x\n${STORED.toString('latin1')}`);
  writeFileSync(`${path}.modified`, '');
  await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message: marked(path) });
  for await (const { damaged } of verifyLog(nodeSystem, path)) t.equal(damaged.length, 1);
  t.match(await repairLog(nodeSystem, path), { plants: 2, removed: 1 });
  t.strictSame(await collect(readPlantLog(path)), [MOSS, IVY]);
  await t.rejects(openPlantLog(path), { ...UNAVAILABLE, message: marked(path) });
  rmSync(`${path}.modified`);
  const log = await openPlantLog(path);
  t.equal(log.size, 2);
  await log.close();
});

t.test('the mark is beside the real file, and found by every path', async (t) => {
  const folder = t.testdir({ real: { 'plants.jsonl': STORED }, other: { 'plants.jsonl': '' } });
  const [real, link] = [join(folder, 'real', 'plants.jsonl'), join(folder, 'link')];
  symlinkSync(real, link);
  const log = await openPlantLog(link, { report: ignore });
  rmSync(real);
  await log.close();
  t.strictSame(readdirSync(dirname(real)), ['plants.jsonl.modified']);
  await t.rejects(openPlantLog(link), { ...UNAVAILABLE, message: marked(real) });
  rmSync(real);
  symlinkSync(join('..', 'other', 'plants.jsonl'), real);
  await t.rejects(openPlantLog(real), { ...UNAVAILABLE, message: marked(real) });
});

t.test('a process that waits for a lock finds the mark that its holder leaves', async (t) => {
  const holder = await openPlantLog(logAt(t, STORED), { report: ignore });
  const system: System = {
    ...nodeSystem,
    async sleep() {
      truncateSync(holder.path);
      await holder.close();
    },
  };
  await t.rejects(openLog(system, holder.path), { ...UNAVAILABLE, message: marked(holder.path) });
});

t.test('a log is closed only once it is marked', async (t) => {
  const { fs, log, path } = await openWithFaults(t, {}, { content: STORED });
  truncateSync(path);
  const gate = holdNext(fs, 'open');
  await t.rejects(log.add(FERN), UNAVAILABLE);
  const closing = log.close();
  await gate.reached;
  t.ok(await isPending(closing));
  await t.rejects(openLog(hasty(), path), LOCKED);
  gate.open();
  await closing;
  t.ok(existsSync(`${path}.modified`));
});

t.test('a mark that cannot be left is reported', async (t) => {
  const { fs, log, path, reports } = await openWithFaults(t, {}, { content: STORED });
  truncateSync(path);
  failNext(fs, 'open', { fails: 'ENOSPC' });
  await log.close();
  t.match(
    reports,
    exactly(
      /: the file was modified/,
      `${path}.modified: no space left on device (ENOSPC); without this file, nothing keeps the log from being opened again`,
    ),
  );
});

t.test('a log whose volume was replaced by a copy is never written to again', async (t) => {
  const path = logAt(t, logOf([MOSS]));
  // A copy has the same inodes on another device.
  let addedToDevice = 0n;
  const statSync: System['statSync'] = (path) => {
    const stats = nodeSystem.statSync(path);
    if (stats) stats.dev += addedToDevice;
    return stats;
  };
  const log = await openLog({ ...nodeSystem, statSync }, path, { report: ignore });
  addedToDevice = 1n;
  await t.rejects(log.add(IVY), { ...UNAVAILABLE, message: /replaced/ });
  t.ok(log.poisoned.aborted);
  await log.close();
  t.equal(readFileSync(path, 'utf8'), String(logOf([MOSS])));
});

/*
 * Whether a plant is the one that is stored with its id is settled by comparing bytes: those to which it
 * encodes with those of the line in the file.
 */

t.test('no more is read than the sent plant takes, however long the stored line is', async (t) => {
  const { system, calls } = noting('read');
  const log = await openLog(system, logAt(t, logOf([{ id: 7n, name: 'x'.repeat(2 ** 20) }])));
  calls.length = 0;
  const sent = { id: 7n, name: 'x' };
  await t.rejects(log.add(sent), { code: 'conflict' });
  const { length } = encodeRecord(sent);
  const reads = calls.map(([path, buffer, at]) => [path, (buffer as Buffer).length, at]);
  t.strictSame(reads, [[log.path, length, 0]]);
  await log.close();
});

t.test('add rejects if a line cannot be read, and the log stays usable', async (t) => {
  const { fs, log } = await openWithFaults(t, {}, { content: STORED });
  failNext(fs, 'read', { fails: 'EIO' });
  await t.rejects(log.add(MOSS), { ...UNAVAILABLE, message: /EIO/ });
  t.equal(await log.add(MOSS), 'unchanged');
  t.equal(await log.add(FERN), 'created');
  t.notOk(log.poisoned.aborted);
});

t.test('a read that hangs delays only the plant that is compared', async (t) => {
  const { fs, log, reports } = await openWithFaults(t, {}, { content: STORED });
  const gate = holdNext(fs, 'read');
  const compared = log.add(MOSS);
  await gate.reached;
  t.equal(await log.add(IVY), 'unchanged');
  t.equal(await log.add(FERN), 'created');
  await fs.expire();
  await log.check();
  t.ok(await isPending(compared));
  gate.open();
  t.equal(await compared, 'unchanged');
  t.strictSame(reports, []);
});

t.test('comparing a plant with a line that was replaced by another poisons the log', async (t) => {
  const { log, path, reports, content } = await openWithFaults(t, {}, { content: STORED });
  const modified = String(STORED).replace(/"id":8(.*),"crc32":\d+/, '"id":1$1');
  writeFileSync(path, modified);
  const error = { ...UNAVAILABLE, message: /: the line at byte \d+ was modified/ };
  const compared = [IVY, IVY].map((plant) => t.rejects(log.add(plant), error));
  await Promise.all(compared);
  t.ok(log.poisoned.aborted);
  t.equal(reports.length, 1, 'it is reported once');
  await t.rejects(log.add(FERN), UNAVAILABLE);
  await log.close();
  t.equal(content(), modified, 'the file is not changed');
  t.ok(existsSync(`${path}.modified`), 'but marked');
});
