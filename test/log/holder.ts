import cluster from 'node:cluster';
import { once } from 'node:events';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

import { openLog, type PlantLog } from '../../dist/log/log.js';
import { PlantStoreError } from '../../dist/store.js';
import { hurried } from './lock-support.js';
import { givingUp } from './support.js';

/*
 * A process that executes the commands on stdin on the log at argv[2], and writes the result of
 * each to stdout. While it has the log open, its process id is in a file beside the log. If it finds
 * such a file, another process has the log open as well, or was killed while it had it open.
 */

const [, , path = ''] = process.argv;
let log: PlantLog | undefined;

const markerOf = (opened: PlantLog): string => `${opened.path}.holder`;

async function open(opening: Promise<PlantLog>): Promise<string> {
  try {
    log = await opening;
  } catch (error) {
    return error instanceof PlantStoreError ? error.code : String(error);
  }
  const other = takeMarker(markerOf(log));
  await log.add({ id: BigInt(log.size), name: `kept by ${process.pid}` });
  return other === undefined ? 'open' : `open beside ${other}`;
}

function takeMarker(marker: string): string | undefined {
  try {
    writeFileSync(marker, String(process.pid), { flag: 'wx' });
    return undefined;
  } catch {
    const other = readFileSync(marker, 'utf8');
    writeFileSync(marker, String(process.pid));
    return other;
  }
}

async function close(): Promise<string> {
  if (log) rmSync(markerOf(log));
  await log?.close();
  return 'closed';
}

let stopLoad = (): Promise<number> => Promise.resolve(0);

/** Adds plants without a pause, 64 at a time, until `unload`. */
function load(): string {
  const opened = log;
  if (!opened) return 'not open';
  let loading = true;
  let id = BigInt(opened.size);
  let acknowledged = 0;
  const adding = Array.from({ length: 64 }, async () => {
    for (; loading; acknowledged++) await opened.add({ id: id++, name: 'fern' });
  });
  stopLoad = async () => {
    loading = false;
    await Promise.all(adding);
    return acknowledged;
  };
  return 'loading';
}

/** Leaves the cluster, as for a graceful restart. */
async function disconnect(): Promise<string> {
  const { worker } = cluster;
  if (!worker) return 'not a worker';
  worker.disconnect();
  await once(worker, 'disconnect');
  return 'disconnected';
}

const commands: Record<string, () => string | Promise<string>> = {
  open: () => open(openLog(hurried, path)),
  /** Does not give up before another process has the log open, however busy the machine is. */
  contend: () =>
    open(
      openLog(
        givingUp(() => existsSync(`${path}.holder`)),
        path,
      ),
    ),
  close,
  load,
  unload: async () => `${await stopLoad()} acknowledged`,
  disconnect,
  pid: () => String(process.pid),
};

console.log('ready');
for await (const command of createInterface({ input: process.stdin }))
  console.log(await commands[command]?.());
// The channel to its primary would keep a worker alive.
process.exit();
