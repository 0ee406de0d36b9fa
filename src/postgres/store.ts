import { AsyncResource } from 'node:async_hooks';

import { measureCommit } from '../channels.js';
import { copyPlant, stringLength, type NewPlant } from '../plant.js';
import type { Report } from '../report.js';
import { PlantStoreError, type PlantStore } from '../store.js';
import { messageOf } from '../system-error.js';
import type { Connection } from './connection.js';
import { rowsOf } from './rows.js';
import { COMPARE, INSERT } from './statements.js';

interface Pending {
  readonly plant: NewPlant;
  readonly bytes: number;
  readonly since: number;
  readonly resolve: (outcome: 'created' | 'unchanged') => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * A batch is full when it reaches one of these: its rows stay locked until it is committed. CockroachDB limits
 * statements to 16 MiB.
 */
const MAX_BATCH = { plants: 2_000, bytes: 4_194_304 };
/** How many bytes of plants may wait for the database, by {@link bytesOf}. */
const MAX_WAITING_BYTES = 67_108_864;

/**
 * A batch in which a plant is refused is stored in parts of this size, and such a part one by one. Of 2,000 plants of
 * which ten are refused, 300 commits store the others. One by one, they would need 2,000, and if a commit took more
 * than 2 ms, some would be refused because of the time.
 */
const PART = 20;

/** The memory that a waiting plant takes at most, in bytes: its strings in UTF-8, and 512 bytes for the rest. */
function bytesOf(plant: NewPlant): number {
  return 512 + 3 * stringLength(plant);
}

const MISSING =
  'it was neither inserted nor found; a trigger may skip it, or row-level security hide it';

const plantOf = ({ plant }: Pending): NewPlant => plant;

/**
 * Stores plants in batches: those that arrive while all connections are busy are stored together.
 * `name` is the name of the database in messages.
 */
export function createStore(
  connections: readonly Connection[],
  name: string,
  { timeoutMs, report }: { readonly timeoutMs: number; readonly report: Report },
): PlantStore {
  const queue: Pending[] = [];
  let queuedBytes = 0;
  const lanes = connections.map((connection) => ({ connection, running: Promise.resolve() }));
  const idle = [...lanes];
  let isClosed = false;
  let isAway = false;
  let outages = 0;

  // Bound to the asynchronous context that opened the store: a batch belongs to many requests.
  const run = AsyncResource.bind(async (lane: (typeof lanes)[number]): Promise<void> => {
    // Plants that are added in the same tick go into the same batch.
    await Promise.resolve();
    while (queue.length > 0) {
      const batch = takeBatch().filter(isInTime);
      if (batch.length > 0) await storeBatch(lane.connection, batch);
    }
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
    if (isOverdue) reject(tooSlow());
    return !isOverdue;
  }

  /** Stores a batch. If one of its plants is refused, it is stored in parts, so that no other is refused. */
  async function storeBatch(connection: Connection, batch: readonly Pending[]): Promise<void> {
    const outagesBefore = outages;
    const publish = measureCommit(name);
    let rest: readonly Pending[] = batch;
    try {
      rest = await insert(connection, batch);
      const missing = rest.length > 0 ? await compare(connection, rest) : [];
      const error = missing.length > 0 ? new Error(MISSING) : undefined;
      publish?.({ plants: batch.length - rest.length, ...(error && { error }) });
      if (error) refuse(missing, error, true);
      if (!isAway || outages > outagesBefore) return;
      isAway = false;
      report(`${name}: plants are stored again`);
    } catch (error) {
      publish?.({ plants: batch.length - rest.length, error });
      if (connection.isOpen() && rest.length > 1) await storeInParts(connection, rest);
      else refuse(rest, error, connection.isOpen());
    }
  }

  async function storeInParts(connection: Connection, batch: readonly Pending[]): Promise<void> {
    const size = batch.length > PART ? PART : 1;
    // Not the time since they were added: they may have waited for a connection, and for a slow plant.
    const deadline = performance.now() + timeoutMs;
    for (let start = 0; start < batch.length; start += size) {
      const part = batch.slice(start, start + size);
      if (performance.now() < deadline) await storeBatch(connection, part);
      else for (const { reject } of part) reject(tooSlow());
    }
  }

  /** Inserts the plants that have no row, and returns the others. */
  async function insert(connection: Connection, batch: readonly Pending[]): Promise<Pending[]> {
    // Of plants with the same id, the first is inserted, and the others are compared with it.
    const firsts = new Map(
      batch.toReversed().map((pending) => [String(pending.plant.id), pending]),
    );
    const rows = await connection.query(INSERT, rowsOf(Array.from(firsts.values(), plantOf)));
    const created = new Set(rows.flatMap(([id]) => firsts.get(id as string) ?? []));
    for (const { resolve } of created) resolve('created');
    return batch.filter((pending) => !created.has(pending));
  }

  /** Compares plants with their rows, and returns those that have none. */
  async function compare(connection: Connection, batch: readonly Pending[]): Promise<Pending[]> {
    const compared = await connection.query(COMPARE, rowsOf(batch.map(plantOf)));
    const isSame = new Map(compared.map(([n, same]) => [batch[Number(n) - 1], same === 't']));
    for (const pending of batch) {
      const same = isSame.get(pending);
      if (same) pending.resolve('unchanged');
      else if (same === false)
        pending.reject(new PlantStoreError('conflict', 'the id belongs to a different plant'));
    }
    return batch.filter((pending) => !isSame.has(pending));
  }

  /** Refuses one plant, or, if the connection was lost, all plants of a batch. */
  function refuse(batch: readonly Pending[], cause: unknown, isOpen: boolean): void {
    const reason = messageOf(cause);
    if (isOpen) {
      report(`${name}: the database refuses a plant: ${reason}`);
    } else {
      outages++;
      if (!isAway)
        report(`${name}: ${reason}; plants are refused until it is available again`, cause);
      isAway = true;
    }
    for (const { reject } of batch) reject(unavailable(reason, cause));
  }

  function tooSlow(): PlantStoreError {
    return unavailable('the database is too slow');
  }

  function unavailable(reason: string, cause?: unknown): PlantStoreError {
    return new PlantStoreError('unavailable', `${name}: ${reason}`, { cause });
  }

  return {
    async add(given) {
      const plant = copyPlant(given);
      const bytes = bytesOf(plant);
      if (isClosed) throw unavailable('the store is closed');
      if (queuedBytes > 0 && queuedBytes + bytes > MAX_WAITING_BYTES)
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
    },
  };
}
