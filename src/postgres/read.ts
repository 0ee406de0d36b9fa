import { MAX_ID, MIN_ID, type StoredPlant } from '../plant.js';
import { createConnector, type Connection } from './connection.js';
import { unavailableBecause } from './errors.js';
import { plantOfRow } from './rows.js';
import type { Password } from './session.js';
import { BEGIN_READING, PAGE, type Statement } from './statements.js';
import { nameOf, parseDatabaseUrl } from './url.js';

/** How long connecting may take, for all hosts together, in milliseconds. */
const CONNECT_MS = 5_000;

/**
 * The options of {@link readPostgresPlants}.
 */
export interface ReadPostgresPlantsOptions {
  /** As the `url` of `openPostgresStore`. Of several hosts, one that is not a standby is read. */
  readonly url: string;
  /** Replaces the password in the URL. A function is called when the server asks for a password. */
  readonly password?: Password | undefined;
  /** Ends the reading when it is aborted, also while the server does not answer. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Reads the plants of a database in the order of their ids. Creates and changes nothing, so the
 * role needs no right but `SELECT` on the table. Waits for locks of other transactions, however
 * long they take.
 *
 * Reads every plant that was acknowledged before the first call of `next()`, unless the host is a
 * standby. A single host in the URL is read even if it is a standby, which may lack the latest
 * plants.
 *
 * @throws {@link PlantStoreError} `unavailable` if the database cannot be read, or holds what is
 * not a plant, or if `signal` is aborted. The reason of `signal` is then the `cause`.
 * @throws TypeError if the URL is not valid.
 *
 * @example
 * ```ts
 * for await (const { id, name, tag } of readPostgresPlants({ url })) console.log(id, name, tag);
 * ```
 */
export async function* readPostgresPlants(
  options: ReadPostgresPlantsOptions,
): AsyncGenerator<StoredPlant> {
  const hosts = parseDatabaseUrl(options.url);
  const createConnection = createConnector(hosts, {
    password: options.password,
    connectMs: CONNECT_MS / hosts.length,
    begin: [BEGIN_READING, String(hosts.length > 1)],
    signal: options.signal ?? new AbortController().signal,
  });
  yield* readPages(createConnection(), PAGE, nameOf(hosts));
}

/**
 * Reads all plants in pages, then closes the connection. `name` is the name of the database in
 * errors.
 */
export async function* readPages(
  connection: Connection,
  page: Statement,
  name: string,
): AsyncGenerator<StoredPlant> {
  try {
    for (let next = MIN_ID; next <= MAX_ID;) {
      const plants = (await connection.query(page, String(next))).map(plantOfRow);
      yield* plants;
      next = (plants.at(-1)?.id ?? MAX_ID) + 1n;
    }
  } catch (error) {
    throw unavailableBecause(name, error);
  } finally {
    connection.close();
  }
}
