import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  linkSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createConnection, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Worker } from 'node:worker_threads';

import t, { type Test } from 'tap';

import { claimPrefix } from '../../dist/log/lock.js';
import { openLog, openPlantLog, type PlantLog } from '../../dist/log/log.js';
import { repairLog } from '../../dist/log/repair.js';
import { codeOf } from '../../dist/system-error.js';
import { nodeSystem, type System } from '../../dist/log/system.js';
import { exactly } from '../helpers/exactly.js';
import { FERN } from '../helpers/plants.js';
import { claimsIn, hasty, sizeOf, startHolder } from './lock-support.js';
import { countOf, faultyFileSystem, LOCKED, logAt, UNAVAILABLE } from './support.js';

/* ../crash-states/lock.test.ts shows that no order of steps lets two processes hold the lock. */

const LOG_MODULE = new URL('../../dist/log/log.js', import.meta.url).href;

t.test('a log that is open is locked, whatever path is given', async (t) => {
  const path = logAt(t, '');
  const [link, hardLink] = [`${path}.link`, `${path}.hard-link`];
  symlinkSync(path, link);
  linkSync(path, hardLink);
  const log = await openPlantLog(path);
  const inode = statSync(path, { bigint: true }).ino.toString(36);
  t.match(claimsIn(dirname(path)), exactly(RegExp(`^\\.plants-${inode}-[\\w-]{11}$`)));
  const lockedAt = (real: string) => ({
    ...LOCKED,
    message: `${real}: a process has the log open ("fuser ${real}" shows which one); one log serves one process, PostgreSQL serves several`,
  });
  await t.rejects(openLog(hasty(), path), lockedAt(path));
  await t.rejects(openLog(hasty(), link), lockedAt(path));
  await t.rejects(openLog(hasty(), hardLink), lockedAt(hardLink));
  await t.rejects(repairLog(hasty(), path), lockedAt(path));
  t.equal(await log.add(FERN), 'created', 'the holder is not affected');
  await log.close();
});

t.test('a claim that loses is withdrawn, and tried again until the lock is released', async (t) => {
  const path = logAt(t);
  const log = await openPlantLog(path);
  let attempts = 0;
  const system: System = {
    ...nodeSystem,
    async sleep() {
      if (++attempts === 3) await log.close();
    },
    // A claim is not listed before there is another claim.
    readdir: async (folder) =>
      claimsIn(folder).length === 1 ? [] : await nodeSystem.readdir(folder),
  };
  await (await openLog(system, path)).close();
  t.equal(attempts, 3);
});

t.test('a lock is tried for 3 s, with random pauses that grow up to half a second', async (t) => {
  const log = await openPlantLog(logAt(t));
  const pauses: number[] = [];
  let now = 0;
  let timer = { at: Infinity, expire: (): void => undefined };
  const system: System = {
    ...nodeSystem,
    startTimer(expire, ms) {
      timer = { at: now + ms, expire };
      return { refresh: () => undefined };
    },
    async sleep(ms) {
      pauses.push(ms);
      now += ms;
      if (now >= timer.at) timer.expire();
    },
  };
  t.intercept(Math, 'random', { value: () => 1 });
  await t.rejects(openLog(system, log.path), LOCKED);
  t.strictSame(pauses, [10, 20, 40, 80, 160, 320, 500, 500, 500, 500, 500]);
  await log.close();
});

t.test('a lock excludes other threads of its process, until its thread ends', async (t) => {
  const path = logAt(t);
  const script = `
    const { openPlantLog } = await import(${JSON.stringify(LOG_MODULE)});
    const { parentPort } = await import('node:worker_threads');
    await openPlantLog(${JSON.stringify(path)});
    parentPort.postMessage('open');
    parentPort.on('message', () => undefined);`;
  const thread = new Worker(new URL(`data:text/javascript,${encodeURIComponent(script)}`));
  t.strictSame(await once(thread, 'message'), ['open']);
  await t.rejects(openLog(hasty(), path), LOCKED);
  await thread.terminate();
  t.equal(await sizeOf(path), 0);
});

const container = ['unshare', '-n', '-p', '-f', '-m', '-i', '-u', '--kill-child'] as const;
const mayContain = spawnSync(container[0], [...container.slice(1), 'true']).status === 0;

t.test('a stopped process keeps its lock, also in a container, until it ends', async (t) => {
  const path = logAt(t);
  const holder = await startHolder(t, path, ...(mayContain ? container : []));
  holder.stop();
  await t.rejects(openLog(hasty(), path), LOCKED);
  await holder.kill();
  t.equal(claimsIn(dirname(path)).length, 1, 'its socket is left');
  t.equal(await sizeOf(path), 1);
  t.strictSame(claimsIn(dirname(path)), [], 'the dead claim is removed');
});

t.test('every user may connect to a claim before it has its final name', async (t) => {
  const path = logAt(t);
  const modes: number[] = [];
  const system: System = {
    ...nodeSystem,
    async rename(from, to) {
      modes.push(statSync(from).mode & 0o777);
      await nodeSystem.rename(from, to);
    },
  };
  const umask = process.umask(0o077);
  t.teardown(() => process.umask(umask));
  await (await openLog(system, path)).close();
  t.strictSame(modes, [0o666]);
});

/**
 * A folder with a short path, in which every user may create files. It is removed when the test
 * ends.
 */
function sharedFolder(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), 'plants-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  chmodSync(folder, 0o777);
  return folder;
}

/** Moves a new log to a folder whose path has this length, and opens it there. */
async function openInFolderOf(t: Test, bytes: number, system = nodeSystem): Promise<PlantLog> {
  const root = sharedFolder(t);
  const first = join(root, 'first');
  await (await openPlantLog(join(first, 'plants.jsonl'))).close();
  const folder = join(root, 'x'.repeat(bytes - root.length - 1));
  renameSync(first, folder);
  return openLog(system, join(folder, 'plants.jsonl'));
}

/** The longest folder in which the paths of sockets have at most 103 bytes. */
async function longestFolder(t: Test): Promise<number> {
  const log = await openInFolderOf(t, 60);
  const [claim = ''] = claimsIn(dirname(log.path));
  await log.close();
  return 103 - `/${claim}~`.length;
}

t.test('a log can be locked however long the path of its folder is', async (t) => {
  const longest = await longestFolder(t);
  t.ok(longest >= 75, `a folder of ${longest} bytes needs no /proc`);
  for (const bytes of [longest, longest + 1, longest + 2, 200]) {
    const log = await openInFolderOf(t, bytes);
    const folder = dirname(log.path);
    t.equal(claimsIn(folder).length, 1, `a folder of ${bytes} bytes`);
    await t.rejects(openLog(hasty(), log.path), LOCKED);
    await log.close();
    t.strictSame(readdirSync(folder), ['plants.jsonl']);
  }
});

t.test('without /proc, an error names a folder whose path is too long for a socket', async (t) => {
  const longest = await longestFolder(t);
  const withoutProc: System = {
    ...nodeSystem,
    realpath: (path) => nodeSystem.realpath(path.replace(/^\/proc\//, '/no proc/')),
  };
  await (await openInFolderOf(t, longest, withoutProc)).close();
  const message =
    /^\/.*x: the path of this folder is too long for the Unix socket in it that locks the log, and there is no \/proc\/self\/fd to shorten it$/;
  await t.rejects(openInFolderOf(t, longest + 1, withoutProc), { ...UNAVAILABLE, message });
});

t.test('the claims of dead processes are removed, and no other files are', async (t) => {
  const path = logAt(t, '');
  const prefix = claimPrefix(statSync(path, { bigint: true }).ino);
  const dead = [`${prefix}0123456789a`, `${prefix}0~`];
  // The last name is a claim to another log, or to a log that a repair has replaced.
  const others = ['plants', 'plants.jsonl', '.plants-', prefix.replace(/-$/, '0-0')];
  for (const name of [...dead, ...others]) writeFileSync(join(dirname(path), name), '');
  await sizeOf(path);
  t.strictSame(readdirSync(dirname(path)).toSorted(), others.toSorted());
});

t.test('a process whose claim is removed before it listens tries again', async (t) => {
  const path = logAt(t);
  const fs = faultyFileSystem({ 'chmod 1': { fails: 'ENOENT' }, 'rename 1': { fails: 'ENOENT' } });
  const log = await openLog(fs, path);
  t.equal(countOf(fs, 'chmod'), 3);
  t.equal(claimsIn(dirname(path)).length, 1);
  await log.close();
  t.strictSame(claimsIn(dirname(path)), []);
});

t.test('an error names a folder in which no Unix socket can be created', async (t) => {
  for (const fails of ['EPERM', 'EINVAL', 'ENOTSUP', 'EACCES', 'ENOSPC']) {
    const path = logAt(t);
    const message = new RegExp(
      `^${dirname(path)}: the Unix socket that locks the log cannot be created: [^;]*\\(${fails}\\); the folder must be writable, and its file system must have Unix sockets$`,
    );
    for (const operation of ['listen 1', 'chmod 1'] as const) {
      await t.rejects(openLog(faultyFileSystem({ [operation]: { fails } }), path), { message });
      t.strictSame(claimsIn(dirname(path)), []);
    }
  }
});

t.test('a lock is released without an error if its claim has been removed', async (t) => {
  const path = logAt(t);
  const log = await openPlantLog(path);
  for (const name of claimsIn(dirname(path))) rmSync(join(dirname(path), name));
  await t.resolves(log.close());
});

/** Runs the script in its arguments as a worker of a cluster. */
const PRIMARY = `
import cluster from 'node:cluster';
const [, , exec, ...args] = process.argv;
cluster.setupPrimary({ exec, args, execArgv: [] });
cluster.fork();`;

t.test("the lock of a cluster worker is its own, not the primary's", async (t) => {
  const path = logAt(t);
  const primary = [process.execPath, '--input-type=module', '--eval', PRIMARY];
  await startHolder(t, path, ...primary);
  await t.rejects(openLog(hasty(), path), LOCKED, 'a worker that leaves the cluster keeps it');
});

t.test('a stopped process whose queue of connections is full keeps its lock', async (t) => {
  const folder = sharedFolder(t);
  const path = join(folder, 'plants.jsonl');
  const holder = await startHolder(t, path);
  holder.stop();
  const claims = claimsIn(folder);
  const connections: Socket[] = [];
  t.teardown(() => connections.forEach((each) => each.destroy()));
  // The queue has room for 511 connections, the number that libuv asks for.
  for (let code: unknown; code === undefined;) {
    const connection = createConnection(join(folder, String(claims)));
    connections.push(connection);
    code = await once(connection, 'connect').then(() => undefined, codeOf);
    if (code !== undefined) t.equal(code, 'EAGAIN');
  }
  await t.rejects(openLog(hasty(), path), LOCKED);
  t.strictSame(claimsIn(folder), claims, 'its claim is not removed');
});

const IS_ROOT = process.geteuid?.() === 0;
const NEEDS_ROOT = { skip: IS_ROOT ? false : 'only root can act as two users' };

/** Acts as another user than root, if this process runs as root. */
async function asOther<Result>(act: () => Promise<Result>): Promise<Result> {
  if (IS_ROOT) process.seteuid?.('nobody');
  try {
    return await act();
  } finally {
    if (IS_ROOT) process.seteuid?.('root');
  }
}

const openAsOther = (path: string, system = nodeSystem): Promise<PlantLog> =>
  asOther(() => openLog(system, path));

t.test('the lock of another user is not taken', async (t) => {
  const folder = sharedFolder(t);
  const path = join(folder, 'plants.jsonl');
  const log = await openPlantLog(path);
  chmodSync(path, 0o666);
  await t.rejects(openAsOther(path, hasty()), LOCKED);
  // A claim to which only its owner may connect.
  for (const claim of claimsIn(folder)) chmodSync(join(folder, claim), 0);
  await t.rejects(openAsOther(path, hasty()), LOCKED);
  await log.close();
});

t.test('a log in a folder that is not writable is neither opened nor repaired', async (t) => {
  const folder = sharedFolder(t);
  const log = join(folder, 'log');
  writeFileSync(log, 'damaged\n');
  chmodSync(folder, 0o555);
  const denied = 'permission denied (EACCES)';
  const [path, missing] = [join(folder, 'plants.jsonl'), join(folder, 'missing')];
  for (const [opened, named] of [
    [path, path],
    [join(missing, 'plants.jsonl'), missing],
  ] as const)
    await t.rejects(openAsOther(opened), { code: 'unavailable', message: `${named}: ${denied}` });
  const repair = asOther(() => repairLog(nodeSystem, log));
  const message = `${folder}: the Unix socket that locks the log cannot be created: ${denied}; the folder must be writable, and its file system must have Unix sockets`;
  await t.rejects(repair, { code: 'unavailable', message });
});

t.test('a dead claim that only another user may remove locks nobody out', NEEDS_ROOT, async (t) => {
  const folder = sharedFolder(t);
  chmodSync(folder, 0o1777);
  const path = join(folder, 'plants.jsonl');
  writeFileSync(path, '');
  chmodSync(path, 0o666);
  const dead = `${claimPrefix(statSync(path, { bigint: true }).ino)}0`;
  writeFileSync(join(folder, dead), '');
  chmodSync(join(folder, dead), 0o666);
  const other = await openAsOther(path);
  await other.close();
  t.strictSame(claimsIn(folder), [dead]);
});
