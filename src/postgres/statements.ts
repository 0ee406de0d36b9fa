import { createHash } from 'node:crypto';

import { COLUMNS, type Column, type Row } from './rows.js';

/** SQL for each column, in their order. */
function forColumns(sql: (column: Column) => string, separator = ', '): string {
  return COLUMNS.map(sql).join(separator);
}

const NAMES = forColumns(({ name }) => name);

/** The type that a column must have; null for columns that the store does not use. */
const TYPE = `CASE attname
      ${forColumns(({ name, type }) => `WHEN '${name}' THEN '${type}'::regtype`, ' ')} END`;

/**
 * Why a column has the wrong type, or null: `double precision` would round an id, and `character varying(5)`
 * cut off spaces.
 */
const WRONG_COLUMN = `(SELECT format('the column %s must be of the type %s', attname, ${TYPE})
    FROM pg_attribute WHERE attrelid = plants AND atttypid <> ${TYPE} LIMIT 1)`;

/** True also if there is no table. With INHERITS, an id could be in the table and in its children. */
const IS_PERMANENT = `CASE relkind
      WHEN 'r' THEN relpersistence = 'p'
        AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = plants)
      WHEN 'p' THEN NOT EXISTS (
        SELECT FROM pg_partition_tree(plants) JOIN pg_class AS part ON part.oid = relid
        WHERE isleaf AND (part.relkind, part.relpersistence) <> ('r', 'p'))
      ELSE relkind IS NULL END`;

/**
 * The table, and two settings that are pinned until the transaction ends. Otherwise a reload during the statement
 * would change them before the commit: the server reads changed settings before it runs the Sync that
 * follows. Without warnings, the server would hide that a plant did not reach its synchronous standby.
 */
const STATE = `(VALUES (to_regclass('plants'))) AS named (plants) LEFT JOIN pg_class ON oid = plants,
  set_config('client_min_messages', 'warning', true) AS warnings,
  set_config('synchronous_commit', current_setting('synchronous_commit'), true) AS durability`;

/**
 * SQL for two columns: why the server would change plants, or null; and why it could lose them, or null, which
 * an operator can accept. Each statement returns them, because all this may change while a connection is
 * open. A sub-select is evaluated once for all rows, which takes about 40 µs a batch.
 * A server other than PostgreSQL may not have the setting `fsync`, which cannot be pinned either.
 */
export const REFUSAL = `(SELECT CASE
    WHEN current_setting('server_encoding') <> 'UTF8' THEN 'the encoding of the database must be UTF8'
    ELSE ${WRONG_COLUMN} END FROM (VALUES (to_regclass('plants'))) AS named (plants)),
  (SELECT CASE
    WHEN durability = 'off' THEN 'synchronous_commit=off can lose plants'
    WHEN current_setting('fsync', true) = 'off' THEN 'fsync=off can lose plants'
    WHEN NOT ${IS_PERMANENT}
      THEN 'an unlogged, temporary or foreign table or partition, INHERITS, or a view can lose plants'
    END FROM ${STATE})`;

/** @throws Error if the last columns are a {@link REFUSAL} that the operator does not accept. */
export function checkRefusal(rows: readonly Row[], acceptDataLoss: boolean): void {
  const [refusal, loss] = rows[0]?.slice(-2) ?? [];
  const reason = refusal ?? (acceptDataLoss ? undefined : loss);
  if (reason) throw new Error(reason);
}

/** A prepared statement, named by the hash of its text. */
function statement(text: string) {
  return { name: createHash('sha256').update(text).digest('hex').slice(0, 32), text };
}
export type Statement = ReturnType<typeof statement>;

const DEFINITIONS = forColumns(({ name, type, constraint }) => `${name} ${type}${constraint}`);
const TABLE = `CREATE TABLE plants (${DEFINITIONS})`;

/**
 * Without a lock, two instances that create the table at the same time could both fail. `lock_timeout` does not limit
 * the wait for this lock. Since PostgreSQL 15, a role may not create tables in the schema public.
 */
export const CREATE_TABLE = statement(`DO $$ BEGIN
  PERFORM set_config('lock_timeout', '0', true);
  PERFORM pg_advisory_xact_lock(hashtext('CREATE TABLE plants'));
  IF to_regclass('plants') IS NULL THEN ${TABLE}; END IF;
EXCEPTION WHEN insufficient_privilege THEN
  RAISE insufficient_privilege USING MESSAGE = format(
    'the table plants is missing and cannot be created: %s; as an administrator, run %s; %s TO %I',
    SQLERRM, '${TABLE}', 'GRANT SELECT, INSERT, UPDATE (exact) ON plants', current_user);
END $$`);

/** The rows of the parameter, numbered from 1. Unlike arrays, JSON does not depend on settings. */
const BATCH = `ROWS FROM (json_to_recordset($1::json)
    AS (${forColumns(({ name, type }) => `${name} ${type}`)})) WITH ORDINALITY AS batch (${NAMES}, n)`;

/** Inserts in the order of ids: otherwise two batches with ids in common could deadlock. */
export const INSERT = statement(`INSERT INTO plants (${NAMES})
  SELECT ${NAMES} FROM ${BATCH}
  ORDER BY id ON CONFLICT (id) DO NOTHING RETURNING id, ${REFUSAL}`);

/** An `INSERT` of no plants, which fails if plants could not be inserted. */
export const CHECK = statement(`WITH none AS (
    INSERT INTO plants (${NAMES}) SELECT ${NAMES} FROM plants WHERE false
    ON CONFLICT (id) DO NOTHING)
  SELECT ${REFUSAL}`);

const IS_SAME = forColumns(
  ({ name }) => `stored.${name}::text COLLATE "C" IS NOT DISTINCT FROM batch.${name}::text`,
  ' AND ',
);

/**
 * For each plant that has a row: its index from 1, and whether plant and row are the same. The rows are not
 * returned, because they may be much larger than the plants. `FOR UPDATE` makes this a transaction that
 * writes. Its commit waits until a synchronous standby has everything before it, including a row whose own
 * transaction gave up that wait.
 */
export const COMPARE = statement(`SELECT batch.n, ${IS_SAME}, ${REFUSAL}
  FROM plants AS stored JOIN ${BATCH}
  ON stored.id = batch.id ORDER BY stored.id FOR UPDATE OF stored`);

/** Up to 10,000 plants, and none after the one with which the columns reach 1 MiB of text in total. */
export const PAGE = statement(`SELECT ${NAMES}, ${REFUSAL} FROM (
    SELECT ${NAMES}, sum(bytes) OVER (ORDER BY id) - bytes AS bytes_before FROM (
      SELECT *, ${forColumns(({ name }) => `coalesce(octet_length(${name}::text), 0)`, ' + ')} AS bytes
      FROM plants WHERE id >= $1::bigint ORDER BY id LIMIT 10000
    ) AS measured
  ) AS page WHERE bytes_before < 1048576 ORDER BY id`);
