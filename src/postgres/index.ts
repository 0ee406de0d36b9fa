import type { NewPlant } from '../plant.js';
import { limitRate, type Report } from '../report.js';
import { PlantStoreError, type PlantStore } from '../store.js';
import { codeOf, createConnector, messageOf, parseUrl, type Connection } from './connection.js';
import { CREATE_TABLE, INSERT, LOCK, PAGE, columnsOf, plantIn } from './rows.js';
import { createStore } from './store.js';

export interface PostgresStoreOptions {
  /**
   * `postgres://user[:password]@host[:port][,…]/database`, with the parameters of pg, such as
   * `sslmode=verify-full`. Of several hosts, the one that takes writes is found and followed.
   */
  readonly url: string;
  /** Instead of the password in the URL. A function is called for each new connection. */
  readonly password?: string | (() => string | Promise<string>);
  /** The number of connections, each with one statement in flight. Default: 2. */
  readonly connections?: number;
  /** How long connecting and each statement may take, in milliseconds. Default: 5000. */
  readonly timeoutMs?: number;
  /** Accepts servers with `synchronous_commit=off` or `fsync=off`. Default: false. */
  readonly acceptDataLoss?: boolean;
  /** Called with what an operator should know. Default: writes to `console.error`. */
  readonly report?: Report;
}

/** A plant store in the table `plants` of a PostgreSQL database. */
export interface PostgresStore extends PlantStore {
  /** Reads all plants in the order of their ids, on a connection of its own. */
  plants(): AsyncIterable<NewPlant>;
}

const MAX = { connections: 1_000, timeoutMs: 2_147_483_647 } as const;

/**
 * Opens a store that any number of processes may share. The table `plants` is created if it is
 * missing. While the database is away, plants are refused as `unavailable`; `report` is called once
 * when that begins and once when it ends.
 *
 * @throws {@link PlantStoreError} `unavailable` if the database cannot be used as it is.
 * @throws TypeError if the URL is not valid.
 * @throws RangeError if a number is not an integer in its range.
 *
 * @example
 * ```ts
 * const store = await openPostgresStore({ url: 'postgres://plants:secret@db1,db2/plants' });
 * createServer(createPlantHandler({ store, tokens: [token] })).listen(8080);
 * ```
 */
export async function openPostgresStore(options: PostgresStoreOptions): Promise<PostgresStore> {
  const { connections = 2, timeoutMs = 5_000, acceptDataLoss = false } = options;
  checkRange('connections', connections);
  checkRange('timeoutMs', timeoutMs);
  const report = limitRate(options.report);
  const hosts = parseUrl(options.url);
  const name = hosts.map(({ host }) => host).join() + String(hosts[0]?.pathname);
  const connect = createConnector({ hosts, password: options.password, timeoutMs, acceptDataLoss });
  const all = Array.from({ length: connections }, connect);
  try {
    for (const connection of all) await prepare(connection);
  } catch (cause) {
    for (const { close } of all) close();
    throw new PlantStoreError('unavailable', `${name}: ${messageOf(cause)}`, { cause });
  }
  const store = createStore(all, name, timeoutMs, report);
  return { ...store, plants: () => readPlants(connect()) };
}

function checkRange(name: keyof typeof MAX, value: number): void {
  if (!Number.isInteger(value) || value < 1 || value > MAX[name])
    throw new RangeError(`${name}: must be an integer between 1 and ${MAX[name]}`);
}

const UNDEFINED_TABLE = '42P01';

/** Runs both statements without plants, which finds most of what the database may lack. */
async function prepare(connection: Connection): Promise<void> {
  try {
    await connection.query(LOCK, [[]]);
  } catch (error) {
    if (codeOf(error) !== UNDEFINED_TABLE) throw error;
    await connection.query(CREATE_TABLE);
  }
  await connection.query(INSERT, columnsOf([]));
}

const MIN_ID = -(2n ** 63n);
const MAX_ID = 2n ** 63n - 1n;

async function* readPlants(connection: Connection): AsyncGenerator<NewPlant> {
  try {
    for (let next = MIN_ID; next <= MAX_ID;) {
      const page = await connection.query(PAGE, [next]);
      const plants = page.map(plantIn);
      yield* plants;
      next = (plants.at(-1)?.id ?? MAX_ID) + 1n;
    }
  } finally {
    connection.close();
  }
}
