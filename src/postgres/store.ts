import type { NewPlant } from '../plant.js';
import type { Report } from '../report.js';
import { copyPlant, isSame, PlantStoreError, type PlantStore } from '../store.js';
import { messageOf } from '../system-error.js';
import { isAboutRows, type Connection } from './connection.js';
import { INSERT, LOCK, columnsOf, plantIn } from './rows.js';

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

/**
 * Stores plants in batches: those that arrive while all connections are busy are stored together.
 * `name` is the name of the database in messages.
 */
export function createStore(
  connections: readonly Connection[],
  name: string,
  timeoutMs: number,
  report: Report,
): PlantStore {
  const queue: Pending[] = [];
  let queuedBytes = 0;
  const lanes = connections.map((connection) => ({ connection, running: Promise.resolve() }));
  const idle = [...lanes];
  let isClosed = false;
  let isAway = false;
  let failures = 0;

  async function run(lane: (typeof lanes)[number]): Promise<void> {
    // Plants that are added in the same tick go into the same batch.
    await Promise.resolve();
    while (queue.length > 0) await storeBatch(lane.connection, takeBatch());
    idle.push(lane);
  }

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
    try {
      await insertOrCompare(connection, batch);
      if (!isAway || failures > failuresBefore) return;
      isAway = false;
      report(`${name}: plants are stored again`);
    } catch (error) {
      if (isAboutRows(error) && batch.length > 1) {
        const middle = batch.length / 2;
        await storeBatch(connection, batch.slice(0, middle));
        await storeBatch(connection, batch.slice(middle));
      } else rejectBatch(batch, error);
    }
  }

  async function insertOrCompare(connection: Connection, batch: readonly Pending[]): Promise<void> {
    // Of plants with the same id, the first is inserted, and the others are compared with it.
    const firsts = new Map(batch.toReversed().map((pending) => [pending.plant.id, pending]));
    const columns = columnsOf([...firsts.values()].map(({ plant }) => plant));
    const created = new Set((await connection.query(INSERT, columns)).map(([id]) => id));
    for (const [id, { resolve }] of firsts) if (created.has(String(id))) resolve('created');
    const others = [...firsts.keys()].filter((id) => !created.has(String(id)));
    const rows = others.length > 0 ? await connection.query(LOCK, [others]) : [];
    const found = new Map(rows.map((row) => [row[0], plantIn(row)]));
    for (const { plant, resolve, reject } of batch) {
      const id = String(plant.id);
      const stored = created.has(id) ? firsts.get(plant.id)?.plant : found.get(id);
      if (!stored) reject(unavailable('a plant was neither inserted nor found'));
      else if (isSame(stored, plant)) resolve('unchanged');
      else reject(new PlantStoreError('conflict', 'the id belongs to a different plant'));
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
