import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { linkSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';

import t from 'tap';

import { nodeSystem, type System } from '../../dist/log/files.js';
import { openLog, openPlantLog, type PlantLog } from '../../dist/log/log.js';
import { repairLog } from '../../dist/log/repair.js';
import {
  claimsIn,
  contest,
  PROCESSES,
  ROUNDS,
  sizeOf,
  startHolder,
  startHolders,
} from './lock-support.js';
import {
  countOf,
  faultyFileSystem,
  givingUp,
  hasty,
  ignore,
  LOCKED,
  logAt,
  shortFolder,
} from './support.js';

const LOG_MODULE = new URL('../../dist/log/log.js', import.meta.url).href;

/** For tests that spend their time waiting: they run side by side. */
const MEANWHILE = { buffered: true };
t.jobs = 3;

t.test('if a process opens a log many times at once, exactly one attempt succeeds', async (t) => {
  const path = logAt(t);
  let isOpen = false;
  async function open(): Promise<PlantLog> {
    const log = await openLog(
      givingUp(() => isOpen),
      path,
    );
    isOpen = true;
    return log;
  }
  const results = await Promise.allSettled(Array.from({ length: 24 }, open));
  const logs = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  t.equal(logs.length, 1);
  for (const result of results) if (result.status === 'rejected') t.match(result.reason, LOCKED);
  await logs[0]?.close();
  t.strictSame(readdirSync(dirname(path)), ['plants.jsonl'], 'no claim is left');
});

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
  await (await openPlantLog(path)).close();
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

t.test('a lock excludes other threads of its process', async (t) => {
  const path = logAt(t);
  const script = `
    const { openPlantLog } = await import(${JSON.stringify(LOG_MODULE)});
    const { parentPort } = await import('node:worker_threads');
    const log = await openPlantLog(${JSON.stringify(path)});
    parentPort.postMessage('open');
    parentPort.once('message', async () => {
      await log.close();
      parentPort.postMessage('closed');
    });`;
  const thread = new Worker(new URL(`data:text/javascript,${encodeURIComponent(script)}`));
  t.teardown(() => thread.terminate());
  t.strictSame(await once(thread, 'message'), ['open']);
  await t.rejects(openLog(hasty(), path), LOCKED);
  thread.postMessage('close');
  t.strictSame(await once(thread, 'message'), ['closed']);
  await (await openPlantLog(path)).close();
});

t.test('two logs in one folder have separate locks', async (t) => {
  const folder = t.testdir();
  const logs = await Promise.all(
    ['one', 'two', 'three'].map((name) => openPlantLog(join(folder, name))),
  );
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
    const log = await openPlantLog(path);
    t.equal(claimsIn(dirname(path)).length, 1, 'the dead claim is removed');
    await log.close();
    t.strictSame(claimsIn(dirname(path)), []);
  }
});

t.test('every user may connect to a claim before it becomes visible', async (t) => {
  const path = logAt(t);
  const modes: number[] = [];
  const fs: System = {
    ...nodeSystem,
    rename(from, to) {
      modes.push(modeOf(from));
      return nodeSystem.rename(from, to);
    },
  };
  const before = process.umask(0);
  t.teardown(() => process.umask(before));
  for (const umask of [0o022, 0o077]) {
    process.umask(umask);
    const log = await openLog(fs, path);
    modes.push(...claimsIn(dirname(path)).map((name) => modeOf(join(dirname(path), name))));
    await log.close();
  }
  t.strictSame(modes, [0o666, 0o666, 0o666, 0o666]);
});

function modeOf(path: string): number {
  return statSync(path).mode & 0o777;
}

/** Waits for a random number of turns of the event loop. */
async function wander(maxTurns: number): Promise<void> {
  for (let turns = Math.random() * maxTurns; turns > 0; turns--) await nextTurn();
}

t.test(`if ${PROCESSES} processes open a log at once, exactly one succeeds`, async (t) => {
  const path = logAt(t);
  const holders = await startHolders(t, path, PROCESSES);
  for (let round = 1; round <= ROUNDS; round++) {
    const winner = await contest(t, holders);
    t.equal(await winner?.tell('close'), 'closed');
  }
  t.strictSame(claimsIn(dirname(path)), []);
  t.equal(await sizeOf(path), ROUNDS, 'each finds what the earlier ones stored');
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
  const path = logAt(t);
  await (await openPlantLog(path)).close();
  const { ino } = statSync(path);
  const dead = [`.plant-store-${ino}-0123456789abcdef`, `.plant-store-${ino}-0.new`];
  // The last one is a claim to another log, or to one that a repair has replaced.
  const others = ['plant-store', 'plants.jsonl', '.plant-store-', `.plant-store-${ino}0-0`];
  for (const name of [...dead, ...others]) writeFileSync(join(dirname(path), name), '');
  await (await openPlantLog(path)).close();
  t.strictSame(readdirSync(dirname(path)).toSorted(), others.toSorted());
});

t.test('a process whose claim is removed before it listens tries again', async (t) => {
  const path = logAt(t);
  const fs = faultyFileSystem({ 'chmod 1': { fails: 'ENOENT' }, 'rename 1': { fails: 'ENOENT' } });
  const log = await openLog(fs, path);
  t.equal(countOf(fs, 'chmod'), 3);
  t.equal(claimsIn(dirname(path)).length, 1);
  await t.rejects(openLog(hasty(), path), LOCKED);
  await log.close();
  t.strictSame(claimsIn(dirname(path)), []);
});

t.test('a folder on a file system without Unix sockets is named as that', async (t) => {
  for (const fails of ['EPERM', 'EINVAL', 'EIO', 'ENOTSUP']) {
    const path = logAt(t);
    const { message } = await failure(openLog(faultyFileSystem({ 'listen 1': { fails } }), path));
    t.ok(message.startsWith(`${dirname(path)}: a Unix socket cannot be bound: `), message);
    t.match(message, `(${fails}); the folder of a log must be on a file system with Unix sockets`);
    t.strictSame(claimsIn(dirname(path)), []);
    await (await openPlantLog(path)).close();
  }
  for (const fails of ['EACCES', 'EROFS', 'ENOSPC']) {
    const { message } = await failure(
      openLog(faultyFileSystem({ 'listen 1': { fails } }), logAt(t)),
    );
    t.match(message, new RegExp(`^.*plants.jsonl: .* \\(${fails}\\)$`));
  }
});

async function failure(opening: Promise<PlantLog>): Promise<Error> {
  return opening.then(
    () => new Error('the log is open'),
    (error: unknown) => error as Error,
  );
}

t.test('a lock is released without an error if its claim has been removed', async (t) => {
  const path = logAt(t);
  const log = await openPlantLog(path);
  for (const name of claimsIn(dirname(path))) rmSync(join(dirname(path), name));
  await t.resolves(log.close());
});

t.test(
  `at most one of ${PROCESSES} processes has the log open while SIGKILL kills some`,
  MEANWHILE,
  async (t) => {
    const path = logAt(t);
    let holders = await startHolders(t, path, PROCESSES);
    const killed = new Set<string>();
    for (let round = 1; round <= ROUNDS; round++) {
      const answering = holders.map((holder) => holder.tell('open'));
      const victims = holders.slice(0, 1 + (round % 3));
      for (const victim of victims) {
        await wander(3_000);
        killed.add(String(victim.pid));
        await victim.end('SIGKILL');
      }
      const answers = await Promise.all(answering);
      for (const answer of answers) {
        const [, beside] = / beside (\d+)$/.exec(answer ?? '') ?? [];
        if (beside !== undefined) t.ok(killed.has(beside), 'the previous holder is dead');
      }
      const survivors = holders.slice(victims.length);
      const winners = survivors.filter((_, index) =>
        answers[victims.length + index]?.startsWith('open'),
      );
      t.ok(winners.length <= 1, answers.join(', '));
      for (const winner of winners) t.equal(await winner.tell('close'), 'closed');
      await t.resolves(sizeOf(path), 'no lock outlives its process');
      holders = [...survivors, ...(await startHolders(t, path, victims.length))];
    }
    t.strictSame(claimsIn(dirname(path)), []);
  },
);

t.test(
  `at most one of ${PROCESSES} processes has the log open while SIGSTOP stops some`,
  MEANWHILE,
  async (t) => {
    const path = logAt(t);
    const holders = await startHolders(t, path, PROCESSES);
    for (let round = 1; round <= Math.ceil(ROUNDS / 10); round++) {
      const answering = holders.map((holder) => holder.tell('open'));
      const stopped = holders.slice(0, 3);
      for (const holder of stopped) {
        await wander(3_000);
        holder.signal('SIGSTOP');
      }
      await Promise.all(answering.slice(stopped.length));
      for (const holder of stopped) holder.signal('SIGCONT');
      const answers = await Promise.all(answering);
      const winners = holders.filter((_, index) => answers[index]?.startsWith('open'));
      t.ok(winners.length <= 1, answers.join(', '));
      t.notOk(answers.some((answer) => answer?.includes('beside')));
      for (const winner of winners) t.equal(await winner.tell('close'), 'closed');
      await t.resolves(sizeOf(path));
    }
  },
);

t.test('a process stopped by SIGSTOP keeps its lock', MEANWHILE, async (t) => {
  const path = logAt(t);
  const holder = await startHolder(t, path);
  t.equal(await holder.tell('open'), 'open');
  holder.signal('SIGSTOP');
  await t.rejects(openPlantLog(path), LOCKED);
  holder.signal('SIGCONT');
  await t.rejects(openPlantLog(path), LOCKED);
  t.equal(await holder.tell('close'), 'closed', 'the other processes did not affect it');
  await t.resolves(sizeOf(path));
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
    for (let round = 1; round <= 3; round++) {
      const winner = await contest(t, [inside, outside]);
      await t.rejects(openLog(hasty(), path), LOCKED);
      t.equal(await winner?.tell('close'), 'closed');
    }
    t.equal(await inside.tell('open'), 'open');
    t.equal(await outside.tell('open'), 'locked');
    await inside.end('SIGKILL');
    t.match(await outside.tell('open'), /^open beside /, 'the lock ends with its process');
    t.equal(await outside.tell('close'), 'closed');
  });
}

t.test('a socket is bound, and closed, only while the file system responds', async (t) => {
  const folder = shortFolder(t);
  const steps: string[] = [];
  const held: (() => void)[] = [];
  const system: System = {
    ...nodeSystem,
    async unlink(name) {
      steps.push('unlink');
      await new Promise<void>((resolve) => held.push(resolve));
      await nodeSystem.unlink(name);
    },
    listen(...claim) {
      steps.push('listen');
      return nodeSystem.listen(...claim);
    },
  };
  async function hang(): Promise<void> {
    while (held.length === 0) await nextTurn();
    for (let turn = 0; turn < 10; turn++) await nextTurn();
  }
  const opening = openLog(system, join(folder, 'plants.jsonl'));
  await hang();
  t.strictSame(steps, ['unlink']);
  held.pop()?.();
  const log = await opening;
  const [claim = ''] = claimsIn(folder);
  const closing = log.close();
  await hang();
  await t.resolves(nodeSystem.connect(join(folder, claim)), 'it still listens');
  held.pop()?.();
  await closing;
  t.strictSame(steps, ['unlink', 'listen', 'unlink']);
});
