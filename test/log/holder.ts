import cluster from 'node:cluster';
import { once } from 'node:events';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

import { nodeSystem, type System } from '../../dist/log/system.js';
import { openLog, type PlantLog } from '../../dist/log/log.js';
import { PlantStoreError } from '../../dist/store.js';
import { givingUp } from './lock-support.js';

/*
 * A process that executes the commands on stdin on the log at argv[2], and writes the result of
 * each to stdout. While it has the log open, its process id is in a file beside the log. If it finds
 * such a file, another process has the log open as well, or was killed while it had it open.
 */

const [, , path = ''] = process.argv;
const marker = `${path}.holder`;
let log: PlantLog | undefined;

async function open(system: System): Promise<string> {
  try {
    log = await openLog(system, path);
  } catch (error) {
    return error instanceof PlantStoreError ? error.code : String(error);
  }
  const other = takeMarker();
  await log.add({ id: BigInt(log.size), name: `kept by ${process.pid}` });
  return other === undefined ? 'open' : `open beside ${other}`;
}

function takeMarker(): string | undefined {
  try {
    writeFileSync(marker, String(process.pid), { flag: 'wx' });
    return undefined;
  } catch {
    const other = readFileSync(marker, 'utf8');
    writeFileSync(marker, String(process.pid));
    return other;
  }
}

/** The real system, on which time passes ten times as fast: a lock is tried for 0.3 s. */
const hurried: System = {
  ...nodeSystem,
  startTimer: (onExpiry, ms) => nodeSystem.startTimer(onExpiry, ms / 10),
  sleep: (ms) => nodeSystem.sleep(ms / 10),
};

const commands: Record<string, () => Promise<string>> = {
  open: () => open(hurried),
  /** Does not give up before another process has the log open, however busy the machine is. */
  contend: () => open(givingUp(() => existsSync(marker))),
  async close() {
    rmSync(marker);
    await log?.close();
    return 'closed';
  },
  /** Leaves the cluster, as for a graceful restart. */
  async disconnect() {
    cluster.worker?.disconnect();
    await once(process, 'disconnect');
    return 'disconnected';
  },
};

console.log('ready');
for await (const command of createInterface({ input: process.stdin }))
  console.log(await commands[command]?.());
// The channel to its primary would keep a worker alive.
process.exit();
