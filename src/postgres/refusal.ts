/** The end of each reason that an operator can accept, with `acceptDataLoss`. */
const LOSS = 'can lose plants';

/** PostgreSQL itself would refuse such a key only when a plant is inserted. */
const HAS_DEFERRABLE_KEY = `EXISTS (
      SELECT FROM pg_index WHERE indrelid = plants AND indisunique AND NOT indimmediate
        AND indnkeyatts = 1 AND 'id' =
          (SELECT attname FROM pg_attribute WHERE attrelid = plants AND attnum = indkey[0]))`;

/** The type that a column must have; null for columns that the store does not use. */
const TYPE = `CASE attname WHEN 'id' THEN 'bigint'::regtype
      WHEN 'name' THEN 'text' WHEN 'tag' THEN 'text' WHEN 'exact' THEN 'text' END`;

/** Why a column has the wrong type, or null. Even a similar type would change plants or refuse them. */
const WRONG_COLUMN = `(
    SELECT format('the column %s must be of the type %s, not %s',
      attname, ${TYPE}, format_type(atttypid, atttypmod))
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
 * SQL for the value of a setting, which stays the same until the transaction ends. Otherwise a reload during
 * the statement would change it before the commit: the server reads changed settings before it runs the
 * Sync that follows.
 */
function pinned(setting: string): string {
  return `set_config('${setting}', current_setting('${setting}'), true)`;
}

/**
 * SQL for the reason why plants cannot be stored as promised, or null. Each statement returns it,
 * because all this may change while a connection is open. A sub-select is evaluated once for all rows: it takes
 * the server 65 to 85 µs a batch (an INSERT of one plant takes 115 µs instead of 50, one of 32 takes 285 µs
 * instead of 200). Pinning the settings makes no measurable difference.
 * A server other than PostgreSQL may not have the setting `fsync`, which cannot be pinned either.
 */
export const REFUSAL = `(SELECT coalesce(
  CASE
    WHEN current_setting('server_encoding') <> 'UTF8'
      THEN 'the encoding of the database must be UTF8'
    WHEN ${pinned('client_min_messages')} = 'error'
      THEN 'client_min_messages=error hides that a plant may be lost'
    WHEN row_security_active(plants)
      THEN 'row-level security can hide plants'
    WHEN ${HAS_DEFERRABLE_KEY}
      THEN 'the key of the column id must not be deferrable'
  END,
  ${WRONG_COLUMN},
  CASE
    WHEN ${pinned('synchronous_commit')} = 'off'
      THEN 'synchronous_commit=off ${LOSS}'
    WHEN current_setting('fsync', true) = 'off'
      THEN 'fsync=off ${LOSS}'
    WHEN NOT ${IS_PERMANENT}
      THEN 'an unlogged, temporary or foreign table or partition, INHERITS, or a view ${LOSS}'
  END)
  FROM (VALUES (to_regclass('plants'))) AS named (plants) LEFT JOIN pg_class ON oid = plants)`;

/** @throws Error if the last column is a {@link REFUSAL} that the operator does not accept. */
export function checkRefusal(
  rows: readonly (readonly (string | null)[])[],
  acceptDataLoss: boolean,
): void {
  const reason = rows[0]?.at(-1);
  if (reason && !(acceptDataLoss && reason.endsWith(LOSS))) throw new Error(reason);
}
