/* A frozen file system: a write does not return until it is thawed. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';

import t, { type Test } from 'tap';

import { openPlantLog } from '../../dist/index.js';
import { encodeRecord } from '../../dist/log/record.js';
import { HANG_MS } from '../../dist/log/commit.js';
import { isPending } from '../log/support.js';
import { KILLED, launch, start, TIMES_OUT } from '../system/program.js';
import { createLedger } from './ledger.js';
import { makeFileSystem, missing, settingsFor, stopCleanly } from './support.js';

const skip = missing('the right to mount', 'loop devices', 'mkfs.ext4', 'fsfreeze');

t.setTimeout(1_800_000);

/** These tests spend their time waiting: they run side by side, each on a file system of its own. */
t.jobs = 5;

function testOnDisk(title: string, work: (t: Test, folder: string) => Promise<void>): void {
  t.test(title, { skip, buffered: true }, async (t) => {
    const { folder } = makeFileSystem(t, 'ext4') ?? {};
    if (folder !== undefined) await work(t, folder);
  });
}

/** Freezes the file system of a folder. Returns a function that thaws it, at the end of the test if not before. */
function freeze(t: Test, folder: string): () => void {
  let isFrozen = true;
  function thaw(): void {
    if (isFrozen) execFileSync('fsfreeze', ['--unfreeze', folder]);
    isFrozen = false;
  }
  execFileSync('fsfreeze', ['--freeze', folder]);
  t.teardown(thaw);
  return thaw;
}

testOnDisk(
  'while the disk hangs, plants get 503; they are stored once it responds',
  async (t, folder) => {
    const log = join(folder, 'plants.jsonl');
    const env = { ...settingsFor(log), PLANT_STORE_MONITOR_PORT: '0' };
    const program = await start(t, { env });
    const [, monitor = ''] = await program.says('stdout', /^monitor: (.*)\n/m);
    const page = async (path: string): Promise<string> => (await fetch(monitor + path)).text();
    const ledger = createLedger();
    const first = ledger.next();
    t.equal(await ledger.post(program, first), 200);

    const thaw = freeze(t, folder);
    const plants = Array.from({ length: 100 }, () => ledger.next());
    const startedAt = performance.now();
    const answers = await Promise.all(plants.map((plant) => ledger.post(program, plant)));
    t.strictSame(new Set(answers), new Set([503]));
    t.ok(performance.now() - startedAt > HANG_MS - 100, 'not before the time is over');
    t.equal(await ledger.post(program, ledger.next()), 503);
    t.equal(await ledger.post(program, first), 503, 'a plant that is stored');
    t.equal(await page('/readyz'), 'unavailable');
    t.equal(await page('/livez'), 'ok');
    t.match(await page('/metrics'), 'plant_store_log_plants 1\n');
    const hangs = `plant-store: ${log}: a write has not returned for ${HANG_MS / 1000} s; plants are refused until it does\n`;
    await program.says('stderr', /until it does\n$/);
    t.equal(program.stderr, hangs);

    thaw();
    await program.says('stderr', /: the write has returned; plants are stored again\n$/);
    while ((await page('/readyz')) !== 'ok') await sleep(10);
    t.match(await page('/metrics'), 'plant_store_commit_failures_total 0\n');
    for (const plant of [first, ...plants]) t.equal(await ledger.post(program, plant), 200);
    ledger.check(log);
    await stopCleanly(t, program);
    ledger.check(log);
  },
);

/** Whether a thread of a process waits for a disk. */
function isBlocked(pid: number): boolean {
  return readdirSync(`/proc/${pid}/task`).some((thread) => {
    try {
      return / \(.*\) D /s.test(readFileSync(`/proc/${pid}/task/${thread}/stat`, 'latin1'));
    } catch {
      // The thread has ended.
      return false;
    }
  });
}

/** Resolves once a thread of a process waits for a disk that hangs, not for one that is busy. */
async function untilBlocked(pid: number): Promise<void> {
  for (let times = 0; times < 100;) {
    await sleep(10);
    times = isBlocked(pid) ? times + 1 : 0;
  }
}

testOnDisk(
  'a program that is told to stop while the disk hangs answers, and ends',
  async (t, folder) => {
    const env = { ...settingsFor(join(folder, 'plants.jsonl')), PLANT_STORE_MONITOR_PORT: '0' };
    const program = await start(t, { env });
    const [, monitor = ''] = await program.says('stdout', /^monitor: (.*)\n/m);
    const thaw = freeze(t, folder);
    program.send('SIGTERM');
    await untilBlocked(program.pid);
    t.equal(await (await fetch(`${monitor}/readyz`)).text(), 'stopping');
    await program.says('stderr', new RegExp(`^${TIMES_OUT}$`));
    thaw();
    t.strictSame(await program.ended, KILLED);
  },
);

for (const args of [[], ['repair']])
  testOnDisk(
    `a program that starts while the disk hangs can be stopped: ${args.join()}`,
    async (t, folder) => {
      const log = join(folder, 'plants.jsonl');
      writeFileSync(log, encodeRecord({ id: 7n, name: 'fern' }));
      const thaw = freeze(t, folder);
      const program = launch(t, { env: settingsFor(log), args });
      await untilBlocked(program.pid);
      program.send('SIGTERM');
      await program.says('stderr', new RegExp(`^${TIMES_OUT}$`));
      thaw();
      t.strictSame(await program.ended, KILLED);
    },
  );

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

testOnDisk(
  'a worker that is terminated has exited only once its write has returned',
  async (t, folder) => {
    const path = join(folder, 'plants.jsonl');
    const plant = { id: 7n, name: 'fern' };
    const workerData = { module: resolve('dist/index.js'), path };
    const worker = new Worker(ADDS, { eval: true, workerData });
    await once(worker, 'message');
    const thaw = freeze(t, folder);
    worker.postMessage(plant);
    await once(worker, 'message');
    await untilBlocked(process.pid);

    const exited = worker.terminate();
    t.ok(await isPending(exited));
    thaw();
    await exited;
    t.equal(readFileSync(path, 'utf8'), encodeRecord(plant));
    const log = await openPlantLog(path);
    t.equal(await log.add(plant), 'unchanged');
    await log.close();
  },
);
