/** How reasons end that an operator may accept. */
const LOSS = 'can lose plants';

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
  WHEN (SELECT relpersistence FROM pg_class WHERE oid = to_regclass('plants')) <> 'p'
    THEN 'an unlogged or temporary table ${LOSS}' END)`;

/** @throws Error if rows end with a {@link REFUSAL} that the operator does not accept. */
export function checkRefusal(
  rows: readonly (readonly (string | null)[])[],
  acceptDataLoss: boolean,
): void {
  const reason = rows[0]?.at(-1);
  if (reason && !(acceptDataLoss && reason.endsWith(LOSS))) throw new Error(reason);
}
