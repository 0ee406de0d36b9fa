import { AsyncResource } from 'node:async_hooks';

import { measureCommit } from '../channels.js';
import type { NewPlant } from '../plant.js';
import type { Report } from '../report.js';
import { copyPlant, PlantStoreError, type PlantStore } from '../store.js';
import { messageOf } from '../system-error.js';
import { isAboutRows, type Connection } from './connection.js';
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
    const overdue = performance.now() - timeoutMs;
    return queue.splice(0, count).filter(({ since, reject }) => {
      if (since < overdue) reject(unavailable('the database is too slow'));
      return since >= overdue;
    });
  }

  async function storeBatch(connection: Connection, batch: readonly Pending[]): Promise<void> {
    if (batch.length === 0) return;
    const failuresBefore = failures;
    const publish = measureCommit(name);
    let plants = 0;
    try {
      await insertOrCompare(connection, batch, (created) => (plants = created));
      publish?.({ plants });
      if (!isAway || failures > failuresBefore) return;
      isAway = false;
      report(`${name}: plants are stored again`);
    } catch (error) {
      publish?.({ plants, error });
      if (isAboutRows(error) && batch.length > 1) {
        const middle = batch.length / 2;
        await storeBatch(connection, batch.slice(0, middle));
        await storeBatch(connection, batch.slice(middle));
      } else rejectBatch(batch, error);
    }
  }

  /** Calls `onInserted` with the number of plants that are durable, even if it rejects afterwards. */
  async function insertOrCompare(
    connection: Connection,
    batch: readonly Pending[],
    onInserted: (plants: number) => void,
  ): Promise<void> {
    // Of plants with the same id, the first is inserted, and the others are compared with it.
    const firsts = new Map(
      batch.toReversed().map((pending) => [String(pending.plant.id), pending]),
    );
    const created = await connection.query(INSERT, rowsOf(Array.from(firsts.values(), plantOf)));
    const stored = new Set(created.map(([id]) => firsts.get(id as string)));
    for (const pending of stored) pending?.resolve('created');
    onInserted(stored.size);
    const others = batch.filter((pending) => !stored.has(pending));
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
