import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';

import t, { type Test } from 'tap';

import { openLog } from '../../dist/log/log.js';
import {
  claimsIn,
  contest,
  ROUNDS,
  sizeOf,
  startHolder,
  startHolders,
  type Holder,
} from './lock-support.js';
import { hasty, LOCKED, shortFolder } from './support.js';

/** The path of a log whose lock can be bound by its own path, not through /proc/self/fd. */
const shortLogAt = (t: Test): string => join(shortFolder(t), 'plants.jsonl');

const CLUSTER = [process.execPath, join(import.meta.dirname, 'cluster-primary.js')];

/** A holder that is the worker of a cluster; its signals go to the primary. */
interface Worker extends Holder {
  readonly workerPid: number;
}

/** Starts a cluster whose worker opens the log. */
async function startWorker(t: Test, path: string, ...wrapper: string[]): Promise<Worker> {
  const holder = await startHolder(t, path, ...wrapper, ...CLUSTER);
  const workerPid = Number(await holder.tell('pid'));
  t.not(workerPid, holder.pid);
  t.equal(await holder.tell('open'), 'open');
  return { ...holder, workerPid };
}

t.test('a worker stopped by SIGSTOP keeps its lock when the primary dies', async (t) => {
  const path = shortLogAt(t);
  const worker = await startWorker(t, path);
  process.kill(worker.workerPid, 'SIGSTOP');
  worker.signal('SIGKILL');
  await worker.exited;
  await t.rejects(openLog(hasty(), path), LOCKED);
  process.kill(worker.workerPid, 'SIGCONT');
  await worker.end('SIGKILL');
  t.equal(await sizeOf(path), 1);
  t.strictSame(claimsIn(dirname(path)), []);
});

t.test('a lock is released when its worker is killed, although the primary lives on', async (t) => {
  const path = shortLogAt(t);
  const worker = await startWorker(t, path);
  process.kill(worker.workerPid, 'SIGKILL');
  t.equal(await worker.nextLine(), 'ready', 'the primary has forked another worker');
  t.equal(await sizeOf(path), 1);
  t.equal(await worker.tell('open'), `open beside ${worker.workerPid}`);
  t.equal(await worker.tell('close'), 'closed');
});

t.test('when the primary is killed, its worker exits and the lock is released', async (t) => {
  const path = shortLogAt(t);
  const worker = await startWorker(t, path);
  t.equal(await worker.tell('load'), 'loading');
  await worker.end('SIGKILL');
  const size = await sizeOf(path);
  t.ok(size > 0);
  t.equal(await sizeOf(path), size);
});

t.test('a worker locks a log whose folder is longer than the path of a socket', async (t) => {
  const path = join(t.testdir(), 'x'.repeat(120), 'plants.jsonl');
  mkdirSync(dirname(path));
  const worker = await startWorker(t, path);
  await t.rejects(openLog(hasty(), path), LOCKED);
  t.equal(await worker.tell('close'), 'closed');
  t.strictSame(claimsIn(dirname(path)), []);
});

t.test('if two workers open a log at once, exactly one succeeds', async (t) => {
  const path = shortLogAt(t);
  const workers = await Promise.all([1, 2].map(() => startHolder(t, path, ...CLUSTER)));
  await contest(t, workers);
});

/** Lets a process try to open a log that is locked, again and again until `over`. Resolves to the last result. */
async function contend(rival: Holder, over: AbortSignal): Promise<string | undefined> {
  let result: string | undefined;
  do result = await rival.tell('open');
  while (result === 'locked' && !over.aborted);
  return result;
}

t.test('worker.disconnect() under load keeps the lock and loses no plant', async (t) => {
  const path = shortLogAt(t);
  const rivals = await startHolders(t, path, 2);
  let size = 0;
  for (let round = 1; round <= Math.ceil(ROUNDS / 3); round++)
    await t.test(`round ${round}`, async (t) => {
      const policy = round % 2 === 1 ? 'rr' : 'none';
      const worker = await startWorker(t, path, 'env', `NODE_CLUSTER_SCHED_POLICY=${policy}`);
      t.equal(await worker.tell('load'), 'loading');
      const over = new AbortController();
      const contended = rivals.map((rival) => contend(rival, over.signal));
      await t.rejects(openLog(hasty(), path), LOCKED);
      t.equal(await worker.tell('disconnect'), 'disconnected');
      over.abort();
      t.strictSame(await Promise.all(contended), ['locked', 'locked']);
      for (const rival of rivals) t.equal(await rival.tell('open'), 'locked');

      const result = (await worker.tell('unload')) ?? '';
      const [acknowledged] = /^\d+(?= acknowledged$)/.exec(result) ?? [];
      t.ok(Number(acknowledged) > 0, result);
      t.equal(await worker.tell('close'), 'closed');
      size += 1 + Number(acknowledged);
      t.equal(await sizeOf(path), size);
    });
});
