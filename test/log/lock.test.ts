import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { linkSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';

import t from 'tap';

import { nodeSystem, type System } from '../../dist/log/files.js';
import { openLog, openPlantLog } from '../../dist/log/log.js';
import { repairLog } from '../../dist/log/repair.js';
import { isLong } from '../length.js';
import {
  claimsIn,
  contest,
  hurried,
  PROCESSES,
  ROUNDS,
  sizeOf,
  startHolder,
  startHolders,
} from './lock-support.js';
import {
  countOf,
  faultyFileSystem,
  hasty,
  holdNext,
  ignore,
  LOCKED,
  logAt,
  shortFolder,
} from './support.js';

/* That two processes never hold the lock, in any order of their steps, is shown by ../crash-states/lock.test.ts. */

const LOG_MODULE = new URL('../../dist/log/log.js', import.meta.url).href;

t.test('a log that is open is locked, whatever path is given', async (t) => {
  const path = logAt(t, '');
  const folder = dirname(path);
  symlinkSync(path, join(folder, 'symbolic link'));
  linkSync(path, join(folder, 'hard link'));
  symlinkSync('.', join(folder, 'folder'));
  const spellings: Record<string, string> = {
    [path]: path,
    [relative(process.cwd(), path)]: path,
    [join(folder, 'symbolic link')]: path,
    [join(folder, 'hard link')]: join(folder, 'hard link'),
    [join(folder, 'folder', 'plants.jsonl')]: path,
  };
  const lockedAt = (real: string) => ({
    ...LOCKED,
    message: `${real}: a process has the log open ("fuser ${real}" shows which one); one log serves one process, PostgreSQL serves several`,
  });
  async function rejectsAll(): Promise<void> {
    for (const [spelling, real] of Object.entries(spellings))
      await t.rejects(openLog(hasty(), spelling), lockedAt(real), spelling);
    await t.rejects(repairLog(hasty(), path, ignore), lockedAt(path), 'a repair');
  }
  const log = await openPlantLog(path);
  await rejectsAll();
  t.equal(await log.add({ id: 7n, name: 'fern' }), 'created', 'the holder is not affected');
  await log.close();

  const holder = await startHolder(t, path);
  t.equal(await holder.tell('open'), 'open');
  await rejectsAll();
  t.equal(await holder.tell('close'), 'closed');
  t.equal(await sizeOf(path), 2);
});

t.test('a process that tries to lock a log gets the lock once it is released', async (t) => {
  const path = logAt(t);
  const log = await openPlantLog(path);
  let attempts = 0;
  const system: System = {
    ...nodeSystem,
    async sleep() {
      if (++attempts === 3) await log.close();
    },
  };
  await (await openLog(system, path)).close();
  t.equal(attempts, 3);
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

t.test('two logs in one folder have separate locks', async (t) => {
  const folder = t.testdir();
  const paths = ['one', 'two', 'three'].map((name) => join(folder, name));
  const logs = await Promise.all(paths.map((path) => openPlantLog(path)));
  await t.rejects(openLog(hasty(), join(folder, 'two')), LOCKED);
  await Promise.all(logs.map((log) => log.close()));
});

t.test('a lock is released when its process ends, however it ends', async (t) => {
  const path = logAt(t);
  for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
    const holder = await startHolder(t, path);
    t.match(await holder.tell('open'), /^open/);
    await holder.end(signal);
    t.equal(claimsIn(dirname(path)).length, 1, 'its socket is left');
    await sizeOf(path);
    t.strictSame(claimsIn(dirname(path)), [], 'the dead claim is removed');
  }
});

t.test('every user may connect to a claim before it becomes visible', async (t) => {
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

t.test(`if ${PROCESSES} processes open a log at once, exactly one succeeds`, async (t) => {
  const path = logAt(t);
  const holders = await startHolders(t, path, PROCESSES);
  let longest = 0;
  for (let round = 1; round <= ROUNDS; round++) {
    const started = performance.now();
    const winner = await contest(t, holders);
    longest = Math.max(longest, performance.now() - started);
    t.equal(await winner?.tell('close'), 'closed');
  }
  t.strictSame(claimsIn(dirname(path)), []);
  t.equal(await sizeOf(path), ROUNDS, 'each finds what the earlier ones stored');
  // Only the long form depends on the time.
  if (isLong) t.ok(longest < 3_000, `all know it within 3 s: ${Math.round(longest)} ms`);
});

/** Waits for a random number of turns of the event loop. */
async function wander(maxTurns: number): Promise<void> {
  for (let turns = Math.random() * maxTurns; turns > 0; turns--) await nextTurn();
}

t.test(
  `at most one of ${PROCESSES} processes has the log open while some are killed or stopped`,
  async (t) => {
    const path = logAt(t);
    let holders = await startHolders(t, path, PROCESSES);
    const killed = new Set<string>();
    for (let round = 1; round <= ROUNDS; round++) {
      const answering = holders.map((holder) => holder.tell('open'));
      const [stopped, ...victims] = holders.slice(0, 2 + (round % 2));
      await wander(1_000);
      stopped?.signal('SIGSTOP');
      for (const victim of victims) {
        await wander(2_000);
        killed.add(String(victim.pid));
        await victim.end('SIGKILL');
      }
      await Promise.all(answering.slice(1));
      stopped?.signal('SIGCONT');
      const answers = await Promise.all(answering);
      for (const answer of answers) {
        const [, beside] = / beside (\d+)$/.exec(answer ?? '') ?? [];
        if (beside !== undefined) t.ok(killed.has(beside), 'the previous holder is dead');
      }
      const survivors = holders.filter((holder) => !victims.includes(holder));
      const winners = survivors.filter((holder) =>
        answers[holders.indexOf(holder)]?.startsWith('open'),
      );
      t.ok(winners.length <= 1, answers.join(', '));
      for (const winner of winners) t.equal(await winner.tell('close'), 'closed');
      await t.resolves(sizeOf(path), 'no lock outlives its process');
      holders = [...survivors, ...(await startHolders(t, path, victims.length))];
    }
    t.strictSame(claimsIn(dirname(path)), []);
  },
);

t.test('a process stopped by SIGSTOP keeps its lock', async (t) => {
  const path = logAt(t);
  const holder = await startHolder(t, path);
  t.equal(await holder.tell('open'), 'open');
  holder.signal('SIGSTOP');
  await t.rejects(openLog(hurried, path), LOCKED);
  holder.signal('SIGCONT');
  await t.rejects(openLog(hurried, path), LOCKED);
  t.equal(await holder.tell('close'), 'closed', 'the other processes did not affect it');
});

t.test('a log can be locked however long the path of its folder is', async (t) => {
  const root = shortFolder(t);
  // The path of a socket has at most 103 bytes, of which the name of a claim takes about 50.
  for (let length = Math.max(35, root.length + 2); length <= 65; length++) {
    const folder = join(root, 'x'.repeat(length - root.length));
    const log = await openPlantLog(join(folder, 'plants.jsonl'));
    t.equal(claimsIn(folder).length, 1, `a folder of ${length} bytes`);
    await t.rejects(openLog(hasty(), log.path), LOCKED);
    await log.close();
    t.strictSame(readdirSync(folder), ['plants.jsonl']);
  }
});

t.test('the claims of dead processes are removed, and no other files are', async (t) => {
  const path = logAt(t, '');
  const { ino } = statSync(path);
  const dead = [`.plant-store-${ino}-0123456789abcdef`, `.plant-store-${ino}-0.new`];
  // The last one is a claim to another log, or to one that a repair has replaced.
  const others = ['plant-store', 'plants.jsonl', '.plant-store-', `.plant-store-${ino}0-0`];
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

t.test('a folder on a file system without Unix sockets is named as that', async (t) => {
  const [noSockets, others] = [
    ['EPERM', 'EINVAL', 'EIO', 'ENOTSUP'],
    ['EACCES', 'EROFS', 'ENOSPC'],
  ];
  for (const fails of [...noSockets, ...others]) {
    const path = logAt(t);
    const message = noSockets.includes(fails)
      ? new RegExp(
          `^${dirname(path)}: a Unix socket cannot be bound: .*\\(${fails}\\); the folder of a log must be on a file system with Unix sockets`,
        )
      : new RegExp(`^${path}: [^;]*\\(${fails}\\)$`);
    await t.rejects(openLog(faultyFileSystem({ 'listen 1': { fails } }), path), { message });
    t.strictSame(claimsIn(dirname(path)), []);
  }
});

t.test('a lock is released without an error if its claim has been removed', async (t) => {
  const path = logAt(t);
  const log = await openPlantLog(path);
  for (const name of claimsIn(dirname(path))) rmSync(join(dirname(path), name));
  await t.resolves(log.close());
});

const namespaces: Record<string, string[]> = {
  'another network namespace': ['unshare', '-n'],
  'another process namespace': ['unshare', '-p', '-f', '--kill-child'],
  'a container of its own': ['unshare', '-n', '-p', '-f', '-m', '-i', '-u', '--kill-child'],
};

for (const [what, wrapper] of Object.entries(namespaces)) {
  const [command = '', ...args] = wrapper;
  const skip = spawnSync(command, [...args, 'true']).status === 0 ? false : 'needs to be root';
  t.test(`a lock excludes other processes in ${what}`, { skip }, async (t) => {
    const path = logAt(t);
    const inside = await startHolder(t, path, ...wrapper);
    const outside = await startHolder(t, path);
    const winner = await contest(t, [inside, outside]);
    t.equal(await winner?.tell('close'), 'closed');
    t.equal(await inside.tell('open'), 'open');
    t.equal(await outside.tell('open'), 'locked');
    await inside.end('SIGKILL');
    t.match(await outside.tell('open'), /^open beside /, 'the lock ends with its process');
    t.equal(await outside.tell('close'), 'closed');
  });
}

t.test('a socket is bound, and closed, only while the file system responds', async (t) => {
  const folder = shortFolder(t);
  const fs = faultyFileSystem();
  const bound = holdNext(fs, 'unlink');
  const opening = openLog(fs, join(folder, 'plants.jsonl'));
  await bound.reached;
  t.equal(countOf(fs, 'listen'), 0);
  bound.open();
  const log = await opening;
  const [claim = ''] = claimsIn(folder);
  const closed = holdNext(fs, 'unlink');
  const closing = log.close();
  await closed.reached;
  await nextTurn();
  await t.resolves(nodeSystem.connect(join(folder, claim)), 'it still listens');
  closed.open();
  await closing;
});
