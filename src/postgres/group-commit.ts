import { AsyncResource } from 'node:async_hooks';

import { publishCommit } from '../channels.js';
import { copyPlant, membersInJson, type NewPlant } from '../plant.js';
import type { Report } from '../report.js';
import { PlantStoreError, type PlantStore } from '../store.js';
import type { Connection } from './connection.js';
import { messageOf, toStoreError } from './errors.js';
import { rowsOf } from './rows.js';
import { COMPARE, INSERT } from './statements.js';

interface Pending {
  readonly plant: NewPlant;
  /** The length of its members in JSON, in bytes. */
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

const MISSING =
  'it was neither inserted nor found; a trigger may skip it, or row-level security hide it';

/**
 * Stores plants in batches: those that arrive while all connections are busy are stored together.
 * `name` is the name of the database in messages.
 */
export function createGroupCommit(
  connections: readonly Connection[],
  name: string,
  { timeoutMs, report }: { readonly timeoutMs: number; readonly report: Report },
): PlantStore {
  const queue: Pending[] = [];
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
    let [count, total] = [0, 0];
    for (const { bytes } of queue) {
      if (count === MAX_BATCH.plants || total >= MAX_BATCH.bytes) break;
      count++;
      total += bytes;
    }
    return queue.splice(0, count);
  }

  function isInTime({ since, reject }: Pending): boolean {
    const isOverdue = performance.now() - since > timeoutMs;
    if (isOverdue) reject(tooSlow());
    return !isOverdue;
  }

  /** Stores a batch. A part in which a plant is refused is stored in halves, so that others are stored in time. */
  async function storeBatch(connection: Connection, batch: readonly Pending[]): Promise<void> {
    // Not the time since they were added: they may have waited for a connection.
    const deadline = performance.now() + timeoutMs;
    const parts = [batch];
    // Grows while it is read. The smaller parts come last: a refusal may take long, and most plants must not wait for
    // it.
    for (const part of parts) {
      if (performance.now() >= deadline) for (const { reject } of part) reject(tooSlow());
      else parts.push(...(await storePart(connection, part)));
    }
  }

  /** Stores plants. If one of them is refused, returns those that are not stored, in halves. */
  async function storePart(
    connection: Connection,
    part: readonly Pending[],
  ): Promise<(readonly Pending[])[]> {
    const outagesBefore = outages;
    const startedAt = performance.now();
    let rest = part;
    try {
      rest = await insert(connection, part);
      const missing = rest.length > 0 ? await compare(connection, rest) : [];
      const error = missing.length > 0 ? new Error(MISSING) : undefined;
      publishCommit(startedAt, { store: name, plants: part.length - rest.length, error });
      if (error) refuse(missing, error);
      if (isAway && outages === outagesBefore) {
        isAway = false;
        report(`${name}: plants are stored again`);
      }
    } catch (error) {
      publishCommit(startedAt, { store: name, plants: part.length - rest.length, error });
      const middle = rest.length >> 1;
      // While the connection is open, only the plants are at fault.
      if (!connection.isOpen()) beAway(rest, error);
      else if (middle > 0) return [rest.slice(0, middle), rest.slice(middle)];
      else refuse(rest, error);
    }
    return [];
  }

  /** Inserts the plants that have no row, and returns the others. */
  async function insert(connection: Connection, batch: readonly Pending[]): Promise<Pending[]> {
    // Of plants with the same id, the first is inserted, and the others are compared with it.
    const firsts = new Map(
      batch.toReversed().map((pending) => [String(pending.plant.id), pending]),
    );
    const plants = Array.from(firsts.values(), ({ plant }) => plant);
    const rows = await connection.query(INSERT, rowsOf(plants));
    const created = new Set(rows.flatMap(([id]) => firsts.get(id as string) ?? []));
    for (const { resolve } of created) resolve('created');
    return batch.filter((pending) => !created.has(pending));
  }

  /** Compares plants with their rows, and returns those that have none. */
  async function compare(connection: Connection, batch: readonly Pending[]): Promise<Pending[]> {
    const plants = batch.map(({ plant }) => plant);
    const compared = await connection.query(COMPARE, rowsOf(plants));
    const isSame = new Map(compared.map(([n, same]) => [batch[Number(n) - 1], same === 't']));
    for (const pending of batch) {
      const same = isSame.get(pending);
      if (same) pending.resolve('unchanged');
      else if (same === false)
        pending.reject(new PlantStoreError('conflict', 'the id belongs to a different plant'));
    }
    return batch.filter((pending) => !isSame.has(pending));
  }

  /** Refuses plants because of what they are, or because other transactions hold their rows. */
  function refuse(plants: readonly Pending[], cause: unknown): void {
    report(`${name}: the database refuses a plant: ${messageOf(cause)}`);
    for (const { reject } of plants) reject(toStoreError(name, cause));
  }

  /** Refuses plants because the database cannot be used. */
  function beAway(plants: readonly Pending[], cause: unknown): void {
    outages++;
    if (!isAway)
      report(`${name}: ${messageOf(cause)}; plants are refused until it is available again`, cause);
    isAway = true;
    for (const { reject } of plants) reject(toStoreError(name, cause));
  }

  function tooSlow(): PlantStoreError {
    return toStoreError(name, new Error('the database is too slow'));
  }

  return {
    async add(given) {
      const plant = copyPlant(given);
      if (isClosed) throw toStoreError(name, new Error('the store is closed'));
      // Throws if it is too long for a string.
      const bytes = Buffer.byteLength(membersInJson(plant));
      return new Promise((resolve, reject) => {
        queue.push({ plant, bytes, since: performance.now(), resolve, reject });
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
