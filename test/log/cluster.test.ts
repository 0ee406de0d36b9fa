import { dirname, join } from 'node:path';

import t, { type Test } from 'tap';

import { openLog } from '../../dist/log/log.js';
import { claimsIn, sizeOf, startHolder, startHolders, type Holder } from './lock-support.js';
import { hasty, LOCKED, shortFolder } from './support.js';

/* A socket of a cluster worker may belong to the primary. That of a lock must not. */

/** The path of a log whose lock can be bound by its own path, not through /proc/self/fd. */
const shortLogAt = (t: Test): string => join(shortFolder(t), 'plants.jsonl');

/** A holder that is the worker of a cluster; its signals go to the primary. */
interface Worker extends Holder {
  readonly workerPid: number;
}

/** Starts a cluster whose worker opens the log. */
async function startWorker(t: Test, path: string, ...wrapper: string[]): Promise<Worker> {
  const primary = [process.execPath, join(import.meta.dirname, 'cluster-primary.js')];
  const holder = await startHolder(t, path, ...wrapper, ...primary);
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

for (const policy of ['rr', 'none'])
  t.test(
    `worker.disconnect() keeps the lock and loses no plant, scheduled by ${policy}`,
    async (t) => {
      const path = shortLogAt(t);
      const rivals = await startHolders(t, path, 2);
      const worker = await startWorker(t, path, 'env', `NODE_CLUSTER_SCHED_POLICY=${policy}`);
      t.equal(await worker.tell('load'), 'loading');
      const contended = rivals.map((rival) => rival.tell('open'));
      t.equal(await worker.tell('disconnect'), 'disconnected');
      t.strictSame(await Promise.all(contended), ['locked', 'locked']);
      for (const rival of rivals) t.equal(await rival.tell('open'), 'locked', 'afterwards, too');

      const result = (await worker.tell('unload')) ?? '';
      const [acknowledged] = /^\d+(?= acknowledged$)/.exec(result) ?? [];
      t.ok(Number(acknowledged) > 0, result);
      t.equal(await worker.tell('close'), 'closed');
      t.equal(await sizeOf(path), 1 + Number(acknowledged));
    },
  );
