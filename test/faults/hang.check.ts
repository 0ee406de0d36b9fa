/* A frozen file system: a write does not return until it is thawed. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';

import t from 'tap';

import { openPlantLog } from '../../dist/index.js';
import { encodeRecord } from '../../dist/log/record.js';
import { isPending } from '../log/support.js';
import { makeFileSystem, missing } from './support.js';

const skip = missing('the right to mount', 'loop devices', 'mkfs.ext4', 'fsfreeze');

/** Whether a thread of this process waits for a disk. */
function isBlocked(): boolean {
  return readdirSync('/proc/self/task').some((thread) => {
    try {
      return / \(.*\) D /s.test(readFileSync(`/proc/self/task/${thread}/stat`, 'latin1'));
    } catch {
      // The thread has ended.
      return false;
    }
  });
}

/** Resolves once a thread of this process waits for a disk that hangs, not for one that is busy. */
async function untilBlocked(): Promise<void> {
  for (let times = 0; times < 100;) {
    await sleep(10);
    times = isBlocked() ? times + 1 : 0;
  }
}

/** Opens the log at a path, and adds a plant when it gets a message. */
const ADDS = `
const { parentPort, workerData } = require('node:worker_threads');
import(workerData.module).then(async ({ openPlantLog }) => {
  const log = await openPlantLog(workerData.path);
  parentPort.once('message', (plant) => {
    log.add(plant);
    setImmediate(() => parentPort.postMessage('writing'));
  });
  parentPort.postMessage('open');
});`;

t.test('a terminated worker exits only once its write has returned', { skip }, async (t) => {
  const { folder } = makeFileSystem(t, 'ext4') ?? {};
  if (folder === undefined) return;
  const path = join(folder, 'plants.jsonl');
  const plant = { id: 7n, name: 'fern' };
  const workerData = { module: resolve('dist/index.js'), path };
  const worker = new Worker(ADDS, { eval: true, workerData });
  await once(worker, 'message');
  execFileSync('fsfreeze', ['--freeze', folder]);
  let exited: Promise<unknown>;
  try {
    worker.postMessage(plant);
    await once(worker, 'message');
    await untilBlocked();
    exited = worker.terminate();
    t.ok(await isPending(exited));
  } finally {
    execFileSync('fsfreeze', ['--unfreeze', folder]);
  }
  await exited;
  t.equal(readFileSync(path, 'utf8'), encodeRecord(plant));
  const log = await openPlantLog(path);
  t.equal(await log.add(plant), 'unchanged');
  await log.close();
});
