import pg from 'pg';

/**
 * What an error is about: the rows of the statement, while everything else is in order; a conflict of
 * transactions; a statement that is not prepared; a server that accepts no statement, or no write, at the
 * moment; or anything else, such as a server that does not answer.
 */
export type ErrorKind = 'rows' | 'conflict' | 'unprepared' | 'server' | 'other';

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
  // A row that another transaction holds.
  '55P03': 'rows',
};
/** The classes that are not about rows. A trigger or a constraint may have any other one. */
const OTHER_CLASSES = /^(?:0[8A]|2[568]|3[DF]|4[02]|5[3578]|F0|XX)/;

export function kindOf(error: unknown): ErrorKind {
  if (!(error instanceof pg.DatabaseError)) return 'other';
  const { code = '', routine } = error;
  const kind = KINDS[code];
  // RAISE in a trigger, whatever SQLSTATE it has chosen.
  if (routine === 'exec_stmt_raise' && kind !== 'conflict') return 'rows';
  return kind ?? (OTHER_CLASSES.test(code) ? 'other' : 'rows');
}

/** Whether the other rows of the statement can be stored without those that the error is about. */
export function isAboutRows(error: unknown): boolean {
  return ['rows', 'conflict'].includes(kindOf(error));
}
