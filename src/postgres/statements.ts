import { MEMBERS, type Member } from '../plant.js';

/** A statement. One with a name is prepared once in each session. */
export interface Statement {
  readonly name?: string;
  readonly text: string;
}

/*
 * The column `refusal` of a result says why the result must not be trusted, or is null. All rows
 * have the same value.
 */

/**
 * Sets what a 200 depends on, for the rest of the transaction, and returns why the database could
 * lose plants nevertheless:
 *
 * - `synchronous_commit` is set to `on` if it is `off`, and otherwise to the value that it has: a
 *   reload of the configuration before the commit does not change what the transaction has set.
 * - `client_min_messages` is set to `warning`: only a warning says that a plant did not reach its
 *   synchronous standby.
 * - `fsync` is only checked, because a session cannot set it. A server other than PostgreSQL may
 *   not have this setting.
 */
const ENSURE_DURABILITY = `(
    SELECT CASE
      WHEN current_setting('fsync', true) = 'off' THEN 'fsync=off can lose plants'
      WHEN relpersistence <> 'p' THEN 'an unlogged or temporary table can lose plants'
    END
    FROM set_config('client_min_messages', 'warning', true) AS warnings
    CROSS JOIN set_config(
      'synchronous_commit',
      CASE current_setting('synchronous_commit')
        WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit')
      END,
      true
    ) AS durability
    LEFT JOIN pg_class ON oid = to_regclass('plants')
  )`;

/**
 * Why the database would alter plants: `double precision` rounds ids, `character varying(5)` cuts
 * off spaces.
 */
const ALTERATION = `(
    SELECT CASE
      WHEN current_setting('server_encoding') <> 'UTF8'
      THEN 'the encoding of the database must be UTF8'
      ELSE (
        SELECT format('the column %s must be of the type %s', attname, type)
        FROM pg_attribute
        JOIN (VALUES ('id', 'bigint'), ('name', 'text'), ('tag', 'text'), ('exact', 'text'))
          AS required (attname, type) USING (attname)
        WHERE attrelid = to_regclass('plants') AND atttypid <> type::regtype
        LIMIT 1
      )
    END
  )`;

/**
 * Begins a session that stores plants. The parameters are `statement_timeout` and `lock_timeout` in
 * milliseconds.
 */
export const BEGIN_STORING: Statement = {
  text: `
  SELECT
    set_config('idle_session_timeout', '0', false),
    set_config('statement_timeout', $1, false),
    set_config('lock_timeout', $2, false),
    coalesce(${ALTERATION}, ${ENSURE_DURABILITY}) AS refusal`,
};

/**
 * Begins a session that only reads plants. Nothing limits how long its statements wait or run. With
 * `row_security` off, a policy that would hide rows from the role is an error. The parameter says
 * whether a standby is refused.
 */
export const BEGIN_READING: Statement = {
  text: `
  SELECT
    set_config('idle_session_timeout', '0', false),
    set_config('statement_timeout', '0', false),
    set_config('lock_timeout', '0', false),
    set_config('row_security', 'off', false),
    CASE
      WHEN $1::boolean AND pg_is_in_recovery() THEN 'it is a standby, which may lack plants'
      ELSE ${ALTERATION}
    END AS refusal`,
};

/** The types of the members' columns. A new member also needs its column in each statement. */
const COLUMN_TYPES: Readonly<Record<Member, string>> = { name: 'text NOT NULL', tag: 'text' };

/**
 * Creates the table. A server often refuses this: since PostgreSQL 15, only the owner of a database
 * may create tables in its schema `public`, unless the right is granted.
 */
export const CREATE_TABLE: Statement = {
  text: `
  CREATE TABLE IF NOT EXISTS plants (
    id bigint PRIMARY KEY,
    ${MEMBERS.map((member) => `${member} ${COLUMN_TYPES[member]}`).join(', ')},
    exact text
  )`,
};

/**
 * Inserts the plants of a batch that have no row, and returns their ids. Rows are inserted in the
 * order of ids: otherwise two batches with ids in common could deadlock. The parameter is JSON
 * because the meaning of an array depends on a setting, `array_nulls`.
 */
export const INSERT: Statement = {
  name: 'insert',
  text: `
  INSERT INTO plants (id, name, tag, exact)
  SELECT id, name, tag, exact
  FROM json_to_recordset($1::json) AS batch (id bigint, name text, tag text, exact text)
  ORDER BY id
  ON CONFLICT (id) DO NOTHING
  RETURNING id, ${ENSURE_DURABILITY} AS refusal`,
};

/**
 * Returns, for each plant of a batch that has a row, its index from 1, and whether the row holds
 * the same plant. Bytes are compared, whatever the collations of the columns. The rows are not
 * returned: they may be much larger than the plants.
 *
 * `FOR UPDATE` makes this a transaction that writes. Its commit waits until a synchronous standby
 * has everything that was written before, including a row whose own transaction gave up that wait.
 */
export const COMPARE: Statement = {
  name: 'compare',
  text: `
  SELECT
    batch.n,
    stored.name COLLATE "C" = batch.name
      AND stored.tag COLLATE "C" IS NOT DISTINCT FROM batch.tag
      AND stored.exact COLLATE "C" IS NOT DISTINCT FROM batch.exact AS same,
    ${ENSURE_DURABILITY} AS refusal
  FROM ROWS FROM (
    json_to_recordset($1::json) AS (id bigint, name text, tag text, exact text)
  ) WITH ORDINALITY AS batch (id, name, tag, exact, n)
  JOIN plants AS stored ON stored.id = batch.id
  ORDER BY stored.id
  FOR UPDATE OF stored`,
};

/**
 * Returns the rows with some ids. `FOR KEY SHARE` makes this a transaction that writes, as in
 * {@link COMPARE}: a plant is not returned before a synchronous standby has it. Rows are locked in
 * the order of ids, as in {@link INSERT}.
 */
export const FIND: Statement = {
  name: 'find',
  text: `
  SELECT id, name, tag, exact, ${ENSURE_DURABILITY} AS refusal
  FROM plants
  WHERE id = ANY ($1::bigint[])
  ORDER BY id
  FOR KEY SHARE`,
};

/** The start of a statement: an `INSERT` of no plants. It fails if plants cannot be inserted. */
const INSERT_NONE = `
  WITH none AS (
    INSERT INTO plants (id, name, tag, exact)
    SELECT id, name, tag, exact FROM plants WHERE false
    ON CONFLICT (id) DO NOTHING
  )`;

/** Fails, or returns a refusal, if plants cannot be stored. */
export const CHECK: Statement = {
  name: 'check',
  text: `${INSERT_NONE}
  SELECT coalesce(${ALTERATION}, ${ENSURE_DURABILITY}) AS refusal`,
};

/** Returns the plants from an id on: at most 10,000, and no more once their strings have 1 MiB. */
export const PAGE: Statement = {
  text: `
  SELECT id, name, tag, exact
  FROM (
    SELECT *, sum(bytes) OVER (ORDER BY id) - bytes AS bytes_before
    FROM (
      SELECT
        id, name, tag, exact,
        coalesce(octet_length(name), 0) + coalesce(octet_length(tag), 0)
          + coalesce(octet_length(exact), 0) AS bytes
      FROM plants
      WHERE id >= $1::bigint
      ORDER BY id
      LIMIT 10000
    ) AS measured
  ) AS page
  WHERE bytes_before < 1048576
  ORDER BY id`,
};

/** As {@link PAGE}, but fails on a standby, which may lack plants. */
export const PAGE_OF_PRIMARY: Statement = { text: `${INSERT_NONE}${PAGE.text}` };
