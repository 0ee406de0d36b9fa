import { createHash } from 'node:crypto';

import type { NewPlant } from '../plant.js';

/** A row as PostgreSQL spells its columns. */
export type Row = readonly (string | null)[];

/** A statement, and the hash of its text as the name under which it is prepared. */
function statement(text: string) {
  return { name: createHash('sha256').update(text).digest('hex').slice(0, 32), text };
}
export type Statement = ReturnType<typeof statement>;

/**
 * `exact` is null, but for plants whose strings `text` cannot hold: then it is the JSON of name and
 * tag, and these have U+FFFD in place of NUL and lone surrogates. Under a lock, because two
 * instances that create a table at the same time may both fail.
 */
export const CREATE_TABLE = statement(`DO $$ BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('CREATE TABLE plants'));
  CREATE TABLE IF NOT EXISTS plants
    (id bigint PRIMARY KEY, name text NOT NULL, tag text, exact text);
END $$`);

/** Inserts in the order of the ids: two batches with common ids would otherwise deadlock. */
export const INSERT = statement(`INSERT INTO plants (id, name, tag, exact)
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[]) AS batch (id, name, tag, exact)
  ORDER BY id ON CONFLICT (id) DO NOTHING RETURNING id`);

/**
 * Locking makes this a transaction that writes. Its commit waits until a synchronous standby has
 * everything before it: also a row whose own transaction has given up that wait.
 */
export const LOCK = statement(`SELECT id, name, tag, exact FROM plants
  WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE`);

/** Up to 10,000 plants, and none after the one that makes it 8 MiB. */
export const PAGE = statement(`SELECT id, name, tag, exact FROM (
    SELECT *, sum(octet_length(name)) OVER (ORDER BY id) - octet_length(name) AS bytes_before
    FROM plants WHERE id >= $1::bigint ORDER BY id LIMIT 10000
  ) AS page WHERE bytes_before < 8388608 ORDER BY id`);

const NOT_TEXT = /[\0\ud800-\udfff]/gu;

/** The parameters of the {@link INSERT} of plants. */
export function columnsOf(plants: readonly NewPlant[]): unknown[][] {
  const rows = plants.map(({ id, name, tag }) => {
    const [nameText, tagText] = [name, tag].map((text) => text?.replace(NOT_TEXT, '\ufffd'));
    const isExact = nameText === name && tagText === tag;
    return [id, nameText, tagText, isExact ? null : JSON.stringify({ name, tag })];
  });
  return [0, 1, 2, 3].map((column) => rows.map((row) => row[column]));
}

export function plantIn([id, name, tag, exact]: Row): NewPlant {
  const plain = tag === null ? { name } : { name, tag };
  const plant = typeof exact === 'string' ? (JSON.parse(exact) as object) : plain;
  return { id: BigInt(id as string), ...plant } as NewPlant;
}
