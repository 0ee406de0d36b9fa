import { AsyncResource } from 'node:async_hooks';

import type { OpenFile } from '../files.js';
import type { Plant } from '../plant.js';
import type { Report } from '../report.js';
import type { PlantStoreError } from '../store.js';
import type { Committer } from './commit.js';
import { createDeferred, type Deferred } from './deferred.js';
import { faults, toStoreError } from './errors.js';
import { toBigInt } from './id.js';
import { readLine } from './lines.js';
import { decodeRecord, RecordReader } from './record.js';
import type { System } from './system.js';
import { createWatchdog } from './watchdog.js';

/** Reads stored plants, to compare them with the plants that are added. */
export interface ReadBack {
  /**
   * Reads the plant with an id from the line at a byte offset. Lines are read one after the other, so that
   * only one is in memory: it may be much larger than the plant that it is compared with. Calls with the same
   * id at the same time share one reading. Otherwise many small requests with the id of a large plant would
   * keep the others waiting.
   *
   * Rejects with a PlantStoreError `unavailable` if the line cannot be read, or not in time, or if it was
   * modified, which poisons the log.
   */
  read(id: bigint, offset: number): Promise<Plant>;
  /** Resolves once no line is being read. */
  idle(): Promise<void>;
}

export interface ReadBackOptions {
  readonly system: System;
  readonly file: OpenFile;
  readonly path: string;
  readonly report: Report;
}

/** A line that is to be read, and the plant in it. */
interface Pending extends Deferred<Plant> {
  readonly offset: number;
}

export function createReadBack(
  { system, file, path, report }: ReadBackOptions,
  committer: Pick<Committer, 'checkFile' | 'poison'>,
): ReadBack {
  /** By id, in the order of their arrival. The first one is being read. */
  const queue = new Map<bigint, Pending>();
  let running: Promise<void> | undefined;
  /** The error with which reads are refused while one hangs. */
  let hang: PlantStoreError | undefined;
  const watchdog = createWatchdog({ system, path, operation: 'a read' }, refusePending);

  // Bound to the asynchronous context that opened the log: the reads belong to many requests.
  const run = AsyncResource.bind(async (): Promise<void> => {
    for (const [id, { offset, resolve, reject }] of queue) {
      watchdog.start();
      await readStored(id, offset).then(resolve, reject);
      watchdog.stop();
      queue.delete(id);
      if (hang) report(`${path}: the read has returned`);
      hang = undefined;
    }
    running = undefined;
  });

  function refusePending(error: PlantStoreError): void {
    hang = error;
    report(`${error.message}; plants whose id is stored are refused until it does`);
    for (const { reject } of queue.values()) reject(error);
    queue.clear();
  }

  async function readStored(id: bigint, offset: number): Promise<Plant> {
    let line: Buffer;
    try {
      line = await readLine(file, offset);
    } catch (error) {
      throw toStoreError(path, error);
    }
    const reader = new RecordReader(line);
    if (reader.read(0) === 0 || toBigInt(reader.id) !== id)
      throw committer.poison(faults.modifiedLine(offset));
    committer.checkFile();
    return decodeRecord(line);
  }

  return {
    read(id, offset) {
      if (hang) return Promise.reject(hang);
      const pending = queue.get(id) ?? { offset, ...createDeferred<Plant>() };
      queue.set(id, pending);
      running ??= run();
      return pending.promise;
    },
    async idle() {
      await running;
    },
  };
}
