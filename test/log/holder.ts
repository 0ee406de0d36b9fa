import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

import { openPlantLog, type PlantLog } from '../../dist/log/log.js';
import { PlantStoreError } from '../../dist/store.js';

/*
 * A process that opens the log at argv[2] and closes it, as lines on stdin tell it, and says on
 * stdout what came of it. While it has the log open, its id is in a file beside the log, which it
 * must find missing: if not, somebody else has the log open as well, or died with it.
 */

const [, , path = ''] = process.argv;
let log: PlantLog | undefined;

const markerOf = (opened: PlantLog): string => `${opened.path}.holder`;

async function open(): Promise<string> {
  try {
    log = await openPlantLog(path);
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

console.log('ready');
for await (const command of createInterface({ input: process.stdin }))
  console.log(await (command === 'open' ? open() : close()));
