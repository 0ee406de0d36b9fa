import { execFileSync } from 'node:child_process';
import {
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';

import t from 'tap';

import { nodeSystem, type System } from '../../dist/log/system.js';
import { openLog, openPlantLog } from '../../dist/log/log.js';
import { readPlantLog } from '../../dist/log/read.js';
import { encodeRecord } from '../../dist/log/encode.js';
import { FERN, IVY, MOSS } from '../helpers/plants.js';
import { collect } from '../helpers/stores.js';
import {
  failNext,
  faultyFileSystem,
  holdNext,
  ignore,
  isPending,
  logAt,
  logOf,
  openWithFaults,
  UNAVAILABLE,
} from './support.js';

/* test/store-contract.test.ts checks for the log what every store promises. */

const noProc = existsSync('/proc/self/fd') ? false : 'needs /proc';

// This test comes first, because the log of an earlier test might close its socket meanwhile.
t.test('a log keeps no process alive, and leaves no descriptor', { skip: noProc }, async (t) => {
  const path = logAt(t, '');
  const { ino } = statSync(path);
  const alive = () => process.getActiveResourcesInfo().filter((each) => /Timeout|Pipe/.test(each));
  /** The number of descriptors of sockets and of the log. */
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

t.test('opening a log makes no synchronous call, which a hung disk would block', async (t) => {
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

/**
 * The real system, but it records each call of a method on an open file: the path of the file and
 * the arguments.
 */
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

t.test('a log whose volume was replaced by a copy is never written to again', async (t) => {
  const path = logAt(t, logOf([MOSS]));
  // A copy of the volume has the same inodes on another device.
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
 * A plant is compared with the stored plant of its id by bytes: the bytes to which the plant
 * encodes with the bytes of the line in the file.
 */

t.test('a comparison reads no more bytes than the sent plant takes in the log', async (t) => {
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
