import type { StoredPlant } from '../plant.js';
import type { Connection } from './connection.js';
import { unavailableBecause } from './errors.js';
import { plantOfRow, type Row } from './rows.js';
import { FIND } from './statements.js';

/** Reads the plant with an id, or `undefined` if there is none. */
export type Lookup = (id: bigint) => Promise<StoredPlant | undefined>;

/** The rows that a query finds, by id. */
interface Batch {
  readonly ids: Set<bigint>;
  readonly rows: Promise<ReadonlyMap<string, Row>>;
}

/**
 * Looks up plants on one connection. All ids that are requested while a query runs share the next
 * query. `name` is the name of the database in errors.
 */
export function createLookup(connection: Connection, name: string): Lookup {
  let running: Promise<unknown> = Promise.resolve();
  /** The batch whose query has not been sent. */
  let next: Batch | undefined;

  function begin(): Batch {
    const ids = new Set<bigint>();
    const rows = running.then(() => {
      next = undefined;
      return find(ids);
    });
    running = rows.catch(() => undefined);
    return { ids, rows };
  }

  async function find(ids: ReadonlySet<bigint>): Promise<ReadonlyMap<string, Row>> {
    const rows = await connection.query(FIND, `{${[...ids].join()}}`);
    return new Map(rows.map((row) => [String(row.id), row]));
  }

  return async function get(id) {
    try {
      const { ids, rows } = (next ??= begin());
      ids.add(id);
      const row = (await rows).get(String(id));
      return row && plantOfRow(row);
    } catch (error) {
      throw unavailableBecause(name, error);
    }
  };
}
