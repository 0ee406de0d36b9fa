import { AsyncResource } from 'node:async_hooks';

import { publishCommit } from '../channels.js';
import { copyPlant, membersInJson, type NewPlant } from '../plant.js';
import type { Report } from '../report.js';
import { PlantStoreError, type PlantStore } from '../store.js';
import type { Connection } from './connection.js';
import { messageOf, RefusedRows, unavailableBecause } from './errors.js';
import { rowsOf } from './rows.js';
import { COMPARE, INSERT } from './statements.js';

interface Pending {
  readonly plant: NewPlant;
  /** The length of its members in JSON, in bytes. */
  readonly bytes: number;
  /** When it was added, on the clock of `performance.now()`. */
  readonly since: number;
  readonly resolve: (outcome: 'created' | 'unchanged') => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * A batch is full when it reaches one of these limits. Its rows stay locked until it is committed,
 * and CockroachDB limits statements to 16 MiB.
 */
const MAX_BATCH = { plants: 2_000, bytes: 4_194_304 };

const MISSING =
  'it was neither inserted nor found; a trigger may skip it, or row-level security hide it';

export interface GroupCommitOptions {
  /** The name of the database in messages. */
  readonly name: string;
  /**
   * How long a plant may wait for a connection, and how long after that parts of its batch are
   * sent.
   */
  readonly timeoutMs: number;
  /** Called when the database cannot be used, and when it can be used again. */
  readonly report: Report;
  /** Called when the database refuses a plant. */
  readonly reportRefusal: Report;
}

interface Lane {
  readonly connection: Connection;
  /** Resolves when the lane is idle, and never rejects. */
  running: Promise<void>;
}

/**
 * Stores plants in batches: plants that arrive while all connections are busy are stored together.
 * One statement inserts a batch, and a second statement compares the plants that have a row already
 * with their rows. Each plant has an outcome of its own:
 *
 * - If the database refuses a batch because of a plant, the batch is stored in halves, so that only
 *   this plant fails.
 * - If the database cannot be used, all plants of the batch fail.
 */
export function createGroupCommit(
  connections: readonly Connection[],
  { name, timeoutMs, report, reportRefusal }: GroupCommitOptions,
): PlantStore {
  const queue: Pending[] = [];
  const lanes = connections.map((connection): Lane => ({ connection, running: Promise.resolve() }));
  const idle = [...lanes];
  let isClosed = false;
  /** Whether the database was reported as unavailable, and has stored no batch since. */
  let isAway = false;

  // Bound to the asynchronous context that opened the store: a batch belongs to many requests.
  const run = AsyncResource.bind(async (lane: Lane): Promise<void> => {
    // Plants that are added in the same tick go into the same batch.
    await Promise.resolve();
    while (queue.length > 0) {
      const [due, overdue] = takeBatch();
      rejectAll(overdue, tooSlow());
      if (due.length > 0) await storeBatch(lane.connection, due);
    }
    idle.push(lane);
  });

  /** Takes the first plants of the queue: those to store, and those that have waited too long. */
  function takeBatch(): [due: Pending[], overdue: Pending[]] {
    let [count, total] = [0, 0];
    for (const { bytes } of queue) {
      if (count === MAX_BATCH.plants || total >= MAX_BATCH.bytes) break;
      count++;
      total += bytes;
    }
    const batch = queue.splice(0, count);
    const oldest = performance.now() - timeoutMs;
    return [
      batch.filter(({ since }) => since >= oldest),
      batch.filter(({ since }) => since < oldest),
    ];
  }

  async function storeBatch(connection: Connection, batch: readonly Pending[]): Promise<void> {
    // The time that the plants have waited for a connection does not count.
    const deadline = performance.now() + timeoutMs;
    let parts = [batch];
    while (parts.length > 0) {
      // All parts of one size before their halves: each refusal may take long, and the plants that
      // are not refused must not wait for all refusals of another part.
      const halves = [];
      for (const part of parts)
        if (performance.now() < deadline) halves.push(...(await storePart(connection, part)));
        else rejectAll(part, tooSlow());
      parts = halves;
    }
  }

  /**
   * Stores plants. If the database refuses a statement with several plants, returns the plants that
   * are not inserted, in halves.
   */
  async function storePart(
    connection: Connection,
    part: readonly Pending[],
  ): Promise<(readonly Pending[])[]> {
    const startedAt = performance.now();
    let notInserted = part;
    let failure: unknown;
    try {
      notInserted = await insert(connection, part);
      const missing = notInserted.length > 0 ? await compare(connection, notInserted) : [];
      if (missing.length > 0) {
        failure = new Error(MISSING);
        refuse(missing, failure);
      }
      if (isAway) report(`${name}: plants are stored again`);
      isAway = false;
    } catch (error) {
      failure = error instanceof RefusedRows ? error.cause : error;
      if (!(error instanceof RefusedRows)) refuseWhileAway(notInserted, failure);
      else if (notInserted.length === 1) refuse(notInserted, failure);
      else return halvesOf(notInserted);
    } finally {
      const plants = part.length - notInserted.length;
      publishCommit(startedAt, { store: name, plants, error: failure });
    }
    return [];
  }

  /** Inserts the plants that have no row, and returns the others. */
  async function insert(connection: Connection, batch: readonly Pending[]): Promise<Pending[]> {
    // Of plants with the same id, the first is inserted, and the others are compared with it.
    const firsts = new Map<string, Pending>();
    for (const pending of batch) {
      const id = String(pending.plant.id);
      if (!firsts.has(id)) firsts.set(id, pending);
    }
    const plants = Array.from(firsts.values(), ({ plant }) => plant);
    const rows = await connection.query(INSERT, rowsOf(plants));
    const created = new Set(rows.flatMap(({ id }) => firsts.get(String(id)) ?? []));
    for (const { resolve } of created) resolve('created');
    return batch.filter((pending) => !created.has(pending));
  }

  /** Compares plants with their rows, and returns those that have none. */
  async function compare(connection: Connection, batch: readonly Pending[]): Promise<Pending[]> {
    const plants = batch.map(({ plant }) => plant);
    const rows = await connection.query(COMPARE, rowsOf(plants));
    const comparisons = new Map(rows.map(({ n, same }) => [batch[Number(n) - 1], same === 't']));
    for (const pending of batch) {
      const same = comparisons.get(pending);
      if (same) pending.resolve('unchanged');
      else if (same === false)
        pending.reject(new PlantStoreError('conflict', 'the id belongs to a different plant'));
    }
    return batch.filter((pending) => !comparisons.has(pending));
  }

  /** Refuses plants because of what they are, or because other transactions hold their rows. */
  function refuse(plants: readonly Pending[], cause: unknown): void {
    reportRefusal(`${name}: the database refuses a plant: ${messageOf(cause)}`);
    rejectAll(plants, unavailableBecause(name, cause));
  }

  /** Refuses plants because the database cannot be used. */
  function refuseWhileAway(plants: readonly Pending[], cause: unknown): void {
    if (!isAway)
      report(`${name}: ${messageOf(cause)}; plants are refused until it is available again`, cause);
    isAway = true;
    rejectAll(plants, unavailableBecause(name, cause));
  }

  function tooSlow(): PlantStoreError {
    return unavailableBecause(name, new Error('the database is too slow'));
  }

  return {
    async add(given) {
      const plant = copyPlant(given);
      if (isClosed) throw unavailableBecause(name, new Error('the store is closed'));
      // `membersInJson` throws a RangeError if the JSON is longer than any string can be.
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

function rejectAll(plants: readonly Pending[], reason: PlantStoreError): void {
  for (const { reject } of plants) reject(reason);
}

function halvesOf(plants: readonly Pending[]): (readonly Pending[])[] {
  const middle = plants.length >> 1;
  return [plants.slice(0, middle), plants.slice(middle)];
}
