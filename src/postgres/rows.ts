import { createHash } from 'node:crypto';

import type { NewPlant } from '../plant.js';
import { REFUSAL } from './refusal.js';

/** The columns of a row as PostgreSQL's text output. The last one is {@link REFUSAL}. */
export type Row = readonly (string | null)[];

/** A prepared statement, named by the hash of its text. */
function statement(text: string) {
  return { name: createHash('sha256').update(text).digest('hex').slice(0, 32), text };
}
export type Statement = ReturnType<typeof statement>;

/**
 * `exact` is null unless the type `text` cannot hold a string of the plant: then it is the JSON of
 * name and tag, which themselves have U+FFFD in place of NUL and lone surrogates. Without a lock, two
 * instances that create the table at the same time could both fail. `lock_timeout` does not limit the wait
 * for this lock.
 */
export const CREATE_TABLE = statement(`DO $$ BEGIN
  PERFORM set_config('lock_timeout', '0', true);
  PERFORM pg_advisory_xact_lock(hashtext('CREATE TABLE plants'));
  CREATE TABLE IF NOT EXISTS plants
    (id bigint PRIMARY KEY, name text NOT NULL, tag text, exact text);
END $$`);

/** The plants of {@link rowsOf}, numbered from 1. Unlike arrays, JSON does not depend on settings. */
const BATCH = `ROWS FROM (json_to_recordset($1::json)
    AS (id bigint, name text, tag text, exact text)) WITH ORDINALITY AS batch (id, name, tag, exact, n)`;

/** Inserts in the order of ids: otherwise two batches with ids in common could deadlock. */
export const INSERT = statement(`INSERT INTO plants (id, name, tag, exact)
  SELECT id, name, tag, exact FROM ${BATCH}
  ORDER BY id ON CONFLICT (id) DO NOTHING RETURNING id, ${REFUSAL}`);

/** An `INSERT` of no plants, which fails if plants could not be inserted. */
export const CHECK = statement(`WITH none AS (
    INSERT INTO plants (id, name, tag, exact) SELECT id, name, tag, exact FROM plants WHERE false
    ON CONFLICT (id) DO NOTHING)
  SELECT ${REFUSAL}`);

/**
 * For each plant that has a row: its index from 1, and whether plant and row are the same. The rows are not
 * returned, because they may be much larger than the plants. `FOR UPDATE` makes this a transaction that
 * writes. Its commit waits until a synchronous standby has everything before it, including a row whose own
 * transaction gave up that wait.
 */
export const COMPARE = statement(`SELECT batch.n, stored.name COLLATE "C" = batch.name
    AND stored.tag COLLATE "C" IS NOT DISTINCT FROM batch.tag
    AND stored.exact COLLATE "C" IS NOT DISTINCT FROM batch.exact, ${REFUSAL}
  FROM plants AS stored JOIN ${BATCH}
  ON stored.id = batch.id ORDER BY stored.id FOR UPDATE OF stored`);

/** Up to 10,000 plants, and none after the one with which the strings reach 1 MiB in total. */
export const PAGE = statement(`SELECT id, name, tag, exact, ${REFUSAL} FROM (
    SELECT id, name, tag, exact, sum(bytes) OVER (ORDER BY id) - bytes AS bytes_before FROM (
      SELECT *, octet_length(name) + coalesce(octet_length(tag), 0)
        + coalesce(octet_length(exact), 0) AS bytes
      FROM plants WHERE id >= $1::bigint ORDER BY id LIMIT 10000
    ) AS measured
  ) AS page WHERE bytes_before < 1048576 ORDER BY id`);

const NOT_TEXT = /[\0\ud800-\udfff]/gu;

/** The parameter of {@link INSERT} and {@link COMPARE}. */
export function rowsOf(plants: readonly NewPlant[]): string {
  return JSON.stringify(
    plants.map(({ id, name, tag }) => {
      const [nameText, tagText] = [name, tag].map((text) => text?.replace(NOT_TEXT, '\ufffd'));
      const isExact = nameText === name && tagText === tag;
      const exact = isExact ? undefined : JSON.stringify({ name, tag });
      return { id: String(id), name: nameText, tag: tagText, exact };
    }),
  );
}

/** The plant in a row of {@link PAGE}. */
export function plantIn([id, name, tag, exact]: Row): NewPlant {
  const plain = tag === null ? { name } : { name, tag };
  const plant = typeof exact === 'string' ? (JSON.parse(exact) as object) : plain;
  return { id: BigInt(id as string), ...plant } as NewPlant;
}
