/** The log of plant-store. */

import { closeSync, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { openPlantLog } from '../../../dist/index.js';
import { encodeRecord } from '../../../dist/log/encode.js';

const FILE = 'plants.jsonl';
const PLANTS_PER_WRITE = 4096;

/** Writes the lines that the store writes, but does not wait for the disk after each batch. */
export function fill(folder, plant, plants) {
  const file = openSync(join(folder, FILE), 'wx', 0o600);
  for (let first = 1; first <= plants; first += PLANTS_PER_WRITE) {
    const end = Math.min(first + PLANTS_PER_WRITE, plants + 1);
    let lines = '';
    for (let id = first; id < end; id++) lines += encodeRecord({ ...plant, id: BigInt(id) });
    writeSync(file, lines);
  }
  closeSync(file);
}

export async function open(folder) {
  const log = await openPlantLog(join(folder, FILE));
  const add = async ({ id, name, tag }) => {
    try {
      return (await log.add({ id: BigInt(id), name, tag })) === 'created';
    } catch (error) {
      if (error.code === 'conflict') return false;
      throw error;
    }
  };
  return { add, close: () => log.close() };
}
