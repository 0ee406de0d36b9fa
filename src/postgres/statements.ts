import { createHash } from 'node:crypto';

import { FULL_REFUSAL, REFUSAL } from './refusal.js';
import { forColumns, MEMBERS_IN_JSON } from './rows.js';

const NAMES = forColumns(({ name }) => name);

/** A statement, which is prepared if it has a name. */
export interface Statement {
  readonly name?: string;
  readonly text: string;
}

/** A prepared statement, named by the hash of its text. */
function statement(text: string): Statement {
  return { name: createHash('sha256').update(text).digest('hex').slice(0, 32), text };
}

const DEFINITIONS = forColumns(({ name, type, constraint }) => `${name} ${type}${constraint}`);
/** Since PostgreSQL 15, only the owner of a database may create tables in its schema public, unless that is granted. */
export const CREATE_TABLE = statement(`CREATE TABLE IF NOT EXISTS plants (${DEFINITIONS})`);

/** The rows of the parameter, numbered from 1. Unlike arrays, JSON does not depend on settings. */
const BATCH = `ROWS FROM (json_to_recordset($1::json)
    AS (${forColumns(({ name, type }) => `${name} ${type}`)})) WITH ORDINALITY AS batch (${NAMES}, n)`;

/** Inserts in the order of ids: otherwise two batches with ids in common could deadlock. */
export const INSERT = statement(`INSERT INTO plants (${NAMES})
  SELECT ${NAMES} FROM ${BATCH}
  ORDER BY id ON CONFLICT (id) DO NOTHING RETURNING id, ${REFUSAL}`);

/** An `INSERT` of no plants, which fails if plants could not be inserted. */
const INSERT_NONE = `WITH none AS (
    INSERT INTO plants (${NAMES}) SELECT ${NAMES} FROM plants WHERE false
    ON CONFLICT (id) DO NOTHING)`;

/** All reasons to refuse the database. */
export const CHECK = statement(`${INSERT_NONE} SELECT ${FULL_REFUSAL}`);

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

/**
 * Up to 10,000 plants, and none after the one with which the columns reach 1 MiB of text in total. Not from a standby,
 * which may lack some.
 */
export const PAGE = statement(`${INSERT_NONE} SELECT id, ${MEMBERS_IN_JSON}, ${REFUSAL} FROM (
    SELECT ${NAMES}, sum(bytes) OVER (ORDER BY id) - bytes AS bytes_before FROM (
      SELECT *, ${forColumns(({ name }) => `coalesce(octet_length(${name}::text), 0)`, ' + ')} AS bytes
      FROM plants WHERE id >= $1::bigint ORDER BY id LIMIT 10000
    ) AS measured
  ) AS page WHERE bytes_before < 1048576 ORDER BY id`);
