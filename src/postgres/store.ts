import { AsyncResource } from 'node:async_hooks';

import { measureCommit } from '../channels.js';
import type { NewPlant } from '../plant.js';
import type { Report } from '../report.js';
import { copyPlant, PlantStoreError, type PlantStore } from '../store.js';
import { messageOf } from '../system-error.js';
import type { Connection } from './connection.js';
import { isAboutRows } from './errors.js';
import { COMPARE, INSERT, rowsOf } from './rows.js';

interface Pending {
  readonly plant: NewPlant;
  readonly bytes: number;
  readonly since: number;
  readonly resolve: (outcome: 'created' | 'unchanged') => void;
  readonly reject: (reason: unknown) => void;
}

/** A batch is full when it reaches one of these. CockroachDB limits statements to 16 MiB. */
const MAX_BATCH = { plants: 2_000, bytes: 4_194_304 };
/**
 * A batch in which a row is refused is split into this many parts, and these are split again. With more
 * parts there are fewer levels, each of which may have to wait for the lock of a row.
 */
const PARTS = 10;
const MAX_QUEUED_BYTES = 67_108_864;
/** The memory of a plant besides its strings. */
const PLANT_BYTES = 512;

const plantOf = ({ plant }: Pending): NewPlant => plant;

export interface StoreOptions {
  readonly timeoutMs: number;
  readonly report: Report;
}

/**
 * Stores plants in batches: those that arrive while all connections are busy are stored together.
 * `name` is the name of the database in messages.
 */
export function createStore(
  connections: readonly Connection[],
  name: string,
  { timeoutMs, report }: StoreOptions,
): PlantStore {
  const queue: Pending[] = [];
  let queuedBytes = 0;
  const lanes = connections.map((connection) => ({ connection, running: Promise.resolve() }));
  const idle = [...lanes];
  let isClosed = false;
  let isAway = false;
  let failures = 0;

  // Bound to the asynchronous context that opened the store: a batch belongs to many requests.
  const run = AsyncResource.bind(async (lane: (typeof lanes)[number]): Promise<void> => {
    // Plants that are added in the same tick go into the same batch.
    await Promise.resolve();
    while (queue.length > 0) await storeBatch(lane.connection, takeBatch());
    idle.push(lane);
  });

  function takeBatch(): Pending[] {
    let [count, bytes] = [0, 0];
    for (const pending of queue) {
      if (count === MAX_BATCH.plants || bytes >= MAX_BATCH.bytes) break;
      count++;
      bytes += pending.bytes;
    }
    queuedBytes -= bytes;
    return queue.splice(0, count);
  }

  function isInTime({ since, reject }: Pending): boolean {
    const isOverdue = performance.now() - since > timeoutMs;
    if (isOverdue) reject(unavailable('the database is too slow'));
    return !isOverdue;
  }

  async function storeBatch(connection: Connection, taken: readonly Pending[]): Promise<void> {
    const batch = taken.filter(isInTime);
    if (batch.length === 0) return;
    const failuresBefore = failures;
    const publish = measureCommit(name);
    let created: ReadonlySet<Pending> = new Set();
    try {
      await insertOrCompare(connection, batch, (inserted) => (created = inserted));
      publish?.({ plants: created.size });
      if (!isAway || failures > failuresBefore) return;
      isAway = false;
      report(`${name}: plants are stored again`);
    } catch (error) {
      publish?.({ plants: created.size, error });
      const rest = batch.filter((pending) => !created.has(pending));
      if (isAboutRows(error) && batch.length > 1) await storeParts(connection, rest);
      else rejectBatch(rest, error);
    }
  }

  async function storeParts(connection: Connection, batch: readonly Pending[]): Promise<void> {
    const size = Math.ceil(batch.length / PARTS);
    for (let start = 0; start < batch.length; start += size)
      await storeBatch(connection, batch.slice(start, start + size));
  }

  /**
   * Inserts the plants that have no row, and calls `onInserted` with them once they are durable. Then
   * compares the others with their rows, which may fail.
   */
  async function insertOrCompare(
    connection: Connection,
    batch: readonly Pending[],
    onInserted: (created: ReadonlySet<Pending>) => void,
  ): Promise<void> {
    // Of plants with the same id, the first is inserted, and the others are compared with it.
    const firsts = new Map(
      batch.toReversed().map((pending) => [String(pending.plant.id), pending]),
    );
    const rows = await connection.query(INSERT, rowsOf(Array.from(firsts.values(), plantOf)));
    const created = new Set(rows.flatMap(([id]) => firsts.get(id as string) ?? []));
    for (const { resolve } of created) resolve('created');
    onInserted(created);
    const others = batch.filter((pending) => !created.has(pending));
    if (others.length === 0) return;
    const compared = await connection.query(COMPARE, rowsOf(others.map(plantOf)));
    const isSame = new Map(compared.map(([n, same]) => [others[Number(n) - 1], same === 't']));
    for (const pending of others) {
      const same = isSame.get(pending);
      if (same) pending.resolve('unchanged');
      else if (same === undefined)
        pending.reject(unavailable('a plant was neither inserted nor found'));
      else pending.reject(new PlantStoreError('conflict', 'the id belongs to a different plant'));
    }
  }

  function rejectBatch(batch: readonly Pending[], cause: unknown): void {
    const reason = messageOf(cause);
    if (isAboutRows(cause)) report(`${name}: the database refuses a plant: ${reason}`);
    else {
      failures++;
      if (!isAway)
        report(`${name}: ${reason}; plants are refused until it is available again`, cause);
      isAway = true;
    }
    for (const { reject } of batch) reject(unavailable(reason, cause));
  }

  function unavailable(reason: string, cause?: unknown): PlantStoreError {
    return new PlantStoreError('unavailable', `${name}: ${reason}`, { cause });
  }

  return {
    async add(given) {
      const plant = copyPlant(given);
      const bytes = PLANT_BYTES + 3 * (plant.name.length + (plant.tag ?? '').length);
      if (isClosed) throw unavailable('the store is closed');
      if (queuedBytes > 0 && queuedBytes + bytes > MAX_QUEUED_BYTES)
        throw unavailable('too many plants are waiting for the database');
      return new Promise((resolve, reject) => {
        queue.push({ plant, bytes, since: performance.now(), resolve, reject });
        queuedBytes += bytes;
        const lane = idle.pop();
        if (lane) lane.running = run(lane);
      });
    },
    async close() {
      isClosed = true;
      await Promise.all(lanes.map(({ running }) => running));
      for (const { close } of connections) close();
    },
  };
}
