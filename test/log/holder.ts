import cluster from 'node:cluster';
import { once } from 'node:events';

import { openPlantLog } from '../../dist/log/log.js';
import { FERN } from '../helpers/plants.js';

/*
 * A process that opens the log at argv[2] and stores a plant. A worker of a cluster then leaves the
 * cluster, as for a graceful restart. The process keeps the log open until its stdin ends.
 */

const [, , path = ''] = process.argv;
const log = await openPlantLog(path);
await log.add(FERN);
if (cluster.worker) {
  cluster.worker.disconnect();
  await once(process, 'disconnect');
}
console.log('open');
process.stdin.resume().on('end', () => process.exit());
