import { setMaxListeners } from 'node:events';

import { checkInteger } from '../options.js';
import { requireInt64, type StoredPlant } from '../plant.js';
import { limitRate, type Report } from '../report.js';
import type { PlantStore } from '../store.js';
import { createConnector, type Connection } from './connection.js';
import { isTableMissing, messageOf, unavailableBecause } from './errors.js';
import { createGroupCommit } from './group-commit.js';
import { createLookup } from './lookup.js';
import { readPages } from './read.js';
import { rowsOf } from './rows.js';
import { beginStoring, type Password } from './session.js';
import { CHECK, COMPARE, CREATE_TABLE, PAGE_OF_PRIMARY } from './statements.js';
import { nameOf, parseDatabaseUrl } from './url.js';

/**
 * The options of {@link openPostgresStore}.
 */
export interface PostgresStoreOptions {
  /**
   * `postgres://user[:password]@host[:port][,…]/database`, with parameters for TLS, such as
   * `sslmode=verify-full`, and `application_name`. Any other parameter is refused. Of several
   * hosts, the one that takes writes is used.
   */
  readonly url: string;
  /** Replaces the password in the URL. A function is called when the server asks for a password. */
  readonly password?: Password | undefined;
  /** The number of connections, each with one statement in flight: at most 1000. Default: 2. */
  readonly connections?: number | undefined;
  /**
   * How long connecting, and the response to each statement, may take, in ms: at most 2147483647.
   * The server cancels a statement after two fifths of it. Default: 5000.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * Called with `(message, cause)` when the table is created, when the database cannot be used,
   * when plants are stored again, and when the database refuses a plant. Refusals are reported at
   * most 10 times in 10 seconds, and so are all other events, with a limit of their own. Default:
   * `console.error`.
   */
  readonly report?: Report | undefined;
}

/** The defaults of {@link PostgresStoreOptions}. */
export const DEFAULTS = { connections: 2, timeoutMs: 5_000 } as const;

/**
 * A plant store in the table `plants` of a PostgreSQL database.
 *
 * @example
 * ```ts
 * for await (const { id, name } of store.plants()) console.log(id, name);
 * ```
 */
export interface PostgresStore extends PlantStore {
  /** The hosts and the database, without user and password: `db1:5432,db2:5432/plants`. */
  readonly name: string;
  /**
   * Reads all plants in the order of their ids, on a connection of its own.
   *
   * The iterator rejects with a {@link PlantStoreError}: `unavailable` if the store is closed
   * before all plants have been read, or if the database cannot be read or holds what is not a
   * plant.
   */
  plants(): AsyncIterable<StoredPlant>;
  /**
   * Reads the plant with an id. Resolves to the plant, exactly as it was stored, or to `undefined`
   * if no plant has the id. A plant whose `add` has not resolved yet may be missing; it is returned
   * only once it is durable.
   *
   * Concurrent calls share one query, on a connection of their own. The query takes as long as
   * storing a plant, because it also waits for a synchronous standby.
   *
   * @throws {@link PlantStoreError} `unavailable` if the plant cannot be read: the store is closed,
   * the database cannot be used, or the row is not a plant.
   * @throws TypeError if the id is not a bigint, and RangeError if it is not an int64, even if the
   * store is closed.
   *
   * @example
   * ```ts
   * const plant = await store.get(7n);
   * console.log(plant === undefined ? 'there is no plant 7' : plant.name);
   * ```
   */
  get(id: bigint): Promise<StoredPlant | undefined>;
  /**
   * Resolves if plants can be stored at the moment: a server takes an `INSERT` of no rows, and
   * neither its settings nor its table could lose or alter plants. Concurrent checks share one
   * statement, on a connection of their own. Stores and reports nothing.
   *
   * @throws {@link PlantStoreError} `unavailable` otherwise.
   *
   * @example Readiness, for a load balancer:
   * ```ts
   * const status = await store.check().then(() => 200, () => 503);
   * ```
   */
  check(): Promise<void>;
}

/**
 * Opens a store that any number of processes may share. Creates the table `plants` if it is
 * missing. If no server can be reached later, plants are refused as `unavailable` until a server
 * can be reached again.
 *
 * @throws {@link PlantStoreError} `unavailable` if the database cannot be used as it is. This
 * function does not try again; {@link isTransient} tells whether another attempt can help.
 * @throws TypeError if the URL, or the type of the password or of `report`, is not valid.
 * @throws RangeError if a number is not an integer in its range.
 *
 * @example
 * ```ts
 * const store = await openPostgresStore({ url: 'postgres://plants:secret@db1,db2/plants' });
 * createServer(createPlantHandler({ store, tokens: [token] })).listen(8080);
 * ```
 */
export async function openPostgresStore(options: PostgresStoreOptions): Promise<PostgresStore> {
  const { password, connections = DEFAULTS.connections, timeoutMs = DEFAULTS.timeoutMs } = options;
  checkInteger('connections', connections, 1_000);
  checkInteger('timeoutMs', timeoutMs, 2_147_483_647);
  if (!['undefined', 'string', 'function'].includes(typeof password))
    throw new TypeError('password: must be a string or a function');
  const report = limitRate(options.report);
  const hosts = parseDatabaseUrl(options.url);
  const name = nameOf(hosts);
  const closing = new AbortController();
  const { signal } = closing;
  // No limit: each open session adds a listener.
  setMaxListeners(0, signal);
  const endSessions = (): void => closing.abort(new Error('the store is closed'));
  const createConnection = createConnector(hosts, {
    password,
    // The limit is for all hosts together.
    connectMs: timeoutMs / hosts.length,
    queryMs: timeoutMs,
    begin: beginStoring(timeoutMs),
    signal,
  });
  const all = Array.from({ length: connections }, createConnection);
  // Reported, because plants that were stored before may be in a table of another schema or
  // database.
  const onCreated = (): void =>
    report(`${name}: the table plants was missing; an empty one was created`);
  try {
    // On all connections: the server must allow as many. One by one: the first creates the table.
    for (const connection of all) await prepareTable(connection, onCreated);
  } catch (cause) {
    endSessions();
    throw unavailableBecause(name, cause);
  }
  const reportRefusal = limitRate(options.report);
  const commit = createGroupCommit(all, { name, timeoutMs, report, reportRefusal });
  const lookup = createLookup(createConnection(), name);
  const probe = createConnection();
  let checking: Promise<unknown> | undefined;
  return {
    name,
    add: (plant) => commit.add(plant),
    plants: () => readPages(createConnection(), PAGE_OF_PRIMARY, name),
    async get(id) {
      requireInt64(id);
      return lookup(id);
    },
    async check() {
      checking ??= probe.query(CHECK).finally(() => (checking = undefined));
      await checking.catch((cause: unknown) => Promise.reject(unavailableBecause(name, cause)));
    },
    async close() {
      await Promise.allSettled([commit.close(), checking]);
      endSessions();
    },
  };
}

/**
 * Creates the table if it is missing. Detects most of what the database may lack: `COMPARE` needs
 * the right to lock rows, and `CHECK` the right to insert them.
 */
async function prepareTable(connection: Connection, onCreated: () => void): Promise<void> {
  const compare = () => connection.query(COMPARE, rowsOf([]));
  try {
    await compare();
  } catch (error) {
    if (!isTableMissing(error)) throw error;
    await connection.query(CREATE_TABLE).then(onCreated, async (cause: unknown) => {
      const message = `the table plants is missing and cannot be created: ${messageOf(cause)}`;
      // Another instance may have created the table meanwhile.
      await compare().catch(() => Promise.reject(new Error(message, { cause })));
    });
  }
  await connection.query(CHECK);
}
