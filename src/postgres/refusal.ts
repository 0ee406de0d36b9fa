/** How reasons end that an operator may accept. */
const LOSS = 'can lose plants';

/** Null if there is no table. With INHERITS, an id could be in the table and in its children. */
const IS_PERMANENT = `CASE relkind
    WHEN 'r' THEN relpersistence = 'p'
      AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = plants)
    WHEN 'p' THEN NOT EXISTS (
      SELECT FROM pg_partition_tree(plants) JOIN pg_class AS part ON part.oid = relid
      WHERE isleaf AND (part.relkind, part.relpersistence) <> ('r', 'p'))
    ELSE relkind IS NULL END`;

/**
 * SQL for the reason why plants cannot be stored as promised, or null. Each statement returns it,
 * because all this may change while a connection is open. A sub-select is evaluated once for all rows.
 * A server other than PostgreSQL may not have these settings.
 */
export const REFUSAL = `(SELECT CASE
  WHEN current_setting('server_encoding') <> 'UTF8'
    THEN 'the encoding of the database must be UTF8'
  WHEN current_setting('client_min_messages', true) = 'error'
    THEN 'client_min_messages=error hides that a plant may be lost'
  WHEN current_setting('synchronous_commit', true) = 'off'
    THEN 'synchronous_commit=off ${LOSS}'
  WHEN current_setting('fsync', true) = 'off'
    THEN 'fsync=off ${LOSS}'
  WHEN NOT ${IS_PERMANENT}
    THEN 'an unlogged, temporary or foreign table or partition, INHERITS, or a view ${LOSS}' END
  FROM (VALUES (to_regclass('plants'))) AS named (plants) LEFT JOIN pg_class ON oid = plants)`;

/** @throws Error if rows end with a {@link REFUSAL} that the operator does not accept. */
export function checkRefusal(
  rows: readonly (readonly (string | null)[])[],
  acceptDataLoss: boolean,
): void {
  const reason = rows[0]?.at(-1);
  if (reason && !(acceptDataLoss && reason.endsWith(LOSS))) throw new Error(reason);
}
