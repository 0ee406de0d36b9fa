import { forColumns, type Row } from './rows.js';

/** The table, or a row with nulls if there is none. */
const TABLE = `(VALUES (to_regclass('plants'))) AS named (plants) LEFT JOIN pg_class ON oid = plants`;

/** The type that a column must have; null for columns that the store does not use. */
const TYPE = `CASE attname
      ${forColumns(({ name, type }) => `WHEN '${name}' THEN '${type}'::regtype`, ' ')} END`;

/**
 * Why the database would change plants: `double precision` would round an id, `character varying(5)` cut off spaces.
 */
const CHANGE = `CASE
    WHEN current_setting('server_encoding') <> 'UTF8' THEN 'the encoding of the database must be UTF8'
    ELSE (SELECT format('the column %s must be of the type %s', attname, ${TYPE})
      FROM pg_attribute WHERE attrelid = plants AND atttypid <> ${TYPE} LIMIT 1) END`;

/**
 * Whether the rows are in a plain table, or in permanent partitions. Whether the table itself is permanent is asked in
 * {@link LOSS}. With INHERITS, an id could be in the table and in its children. A missing table is safe.
 */
const HAS_SAFE_KIND = `CASE relkind
      WHEN 'r' THEN NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = plants)
      WHEN 'p' THEN NOT EXISTS (
        SELECT FROM pg_partition_tree(plants) JOIN pg_class AS part ON part.oid = relid
        WHERE isleaf AND (part.relkind, part.relpersistence) <> ('r', 'p'))
      ELSE relkind IS NULL END`;

/**
 * Two settings are pinned until the transaction ends. Otherwise a reload during the statement would change them before
 * the commit: the server reads changed settings before it runs the Sync that follows. Without warnings, the server
 * would hide that a plant did not reach its synchronous standby. `fsync` cannot be pinned, and a server other than
 * PostgreSQL may not have it.
 */
const LOSS = `(SELECT CASE
    WHEN durability = 'off' THEN 'synchronous_commit=off can lose plants'
    WHEN current_setting('fsync', true) = 'off' THEN 'fsync=off can lose plants'
    WHEN relpersistence <> 'p' THEN 'an unlogged or temporary table can lose plants' END
  FROM ${TABLE},
    set_config('client_min_messages', 'warning', true) AS warnings,
    set_config('synchronous_commit', current_setting('synchronous_commit'), true) AS durability)`;

/**
 * SQL for the last two columns of each statement: why the database would change plants, and why it could lose them,
 * which an operator can accept; null if there is no reason. All rows have the same. The first is always null here:
 * within a session, only settings and a table that is not permanent are asked for again, and other changes of the table
 * are noticed by the next session or `check`.
 */
export const REFUSAL = `NULL, ${LOSS}`;

/** The same columns with all reasons, for a new session and for `check`. */
export const FULL_REFUSAL = `(SELECT ${CHANGE} FROM ${TABLE}), coalesce(${LOSS}, (SELECT CASE WHEN NOT ${HAS_SAFE_KIND}
    THEN 'an unlogged or foreign partition, INHERITS, a view or a foreign table can lose plants'
    END FROM ${TABLE}))`;

/** @throws Error if the last columns are a {@link REFUSAL} that the operator does not accept. */
export function checkRefusal(rows: readonly Row[], acceptDataLoss: boolean): void {
  const [change, loss] = rows[0]?.slice(-2) ?? [];
  const reason = change ?? (acceptDataLoss ? undefined : loss);
  if (reason) throw new Error(reason);
}
