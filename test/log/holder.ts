import cluster from 'node:cluster';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

import { openLog, type PlantLog } from '../../dist/log/log.js';
import { codeOf } from '../../dist/system-error.js';
import { hasty } from './lock-support.js';

/*
 * A process that executes the commands on stdin on the log at argv[2], and writes the result of each, or the code of
 * its error, to stdout.
 */

const [, , path = ''] = process.argv;
let log: PlantLog | undefined;

const commands: Record<string, () => Promise<string>> = {
  async open() {
    log = await openLog(hasty(), path);
    await log.add({ id: BigInt(log.size), name: 'fern' });
    return 'open';
  },
  async close() {
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
  console.log(await commands[command]?.().catch(codeOf));
// The channel to its primary would keep a worker alive.
process.exit();
