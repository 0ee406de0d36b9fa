import pg from 'pg';

import { codeOf } from '../system-error.js';

/**
 * What an error is about: `rows` of the statement; a `conflict` of transactions; a statement that is not
 * prepared; a `server` that accepts no statement, or no write, at the moment; an `outage` of the connection or
 * of the disk. `unclear` if the SQLSTATE does not tell, because a trigger or a constraint may fail with any.
 */
export type ErrorKind = 'rows' | 'conflict' | 'unprepared' | 'server' | 'outage' | 'unclear';

// See https://www.postgresql.org/docs/current/errcodes-appendix.html.
const KINDS: Readonly<Record<string, ErrorKind>> = {
  '40001': 'conflict',
  '40P01': 'conflict',
  // PgBouncer in transaction mode prepares a statement on one connection and runs it on another.
  '26000': 'unprepared',
  '42P05': 'unprepared',
  // Read-only (a standby); too many connections; starting up or shutting down.
  '25006': 'server',
  '53300': 'server',
  '57P03': 'server',
  // The disk is full.
  '53100': 'outage',
  // A row that another transaction holds.
  '55P03': 'rows',
};

export function kindOf(error: unknown): ErrorKind {
  if (!(error instanceof pg.DatabaseError)) return 'outage';
  const { code = '', routine } = error;
  const kind = KINDS[code] ?? 'unclear';
  // RAISE in a trigger, whatever SQLSTATE it has chosen.
  return routine === 'exec_stmt_raise' && kind !== 'conflict' ? 'rows' : kind;
}

/** Whether there is no table (`undefined_table`). */
export function isMissingTable(error: unknown): boolean {
  return codeOf(error) === '42P01';
}

/** Whether the server has ended a statement because of its `statement_timeout`, or was asked to. */
export function isTimeout(error: unknown): boolean {
  return codeOf(error) === '57014';
}
