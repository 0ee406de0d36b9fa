import pg from 'pg';

import { PlantStoreError } from '../store.js';
import { codeOf } from '../system-error.js';
import type { Session } from './session.js';
import { CHECK } from './statements.js';

/**
 * What to do about a statement that failed:
 *
 * - `pause`, and send it again: it conflicts with other transactions.
 * - `unprepare`: send it without its name.
 * - `repeat`: send it again, once. Its rows may be the cause, or something that is over.
 * - `fail`: its rows are the cause, so others can be stored.
 * - `move on`: send it to the next host. It has not run.
 * - `lost`: leave the host. It may have run, or nothing can be stored there.
 */
export type Reaction = 'pause' | 'unprepare' | 'repeat' | 'fail' | 'move on' | 'lost';

// See https://www.postgresql.org/docs/current/errcodes-appendix.html.
const REACTIONS: Readonly<Record<string, Reaction>> = {
  '40001': 'pause',
  '40P01': 'pause',
  // PgBouncer in transaction mode prepares a statement on one connection and runs it on another.
  '26000': 'unprepare',
  '42P05': 'unprepare',
  // The disk is full.
  '53100': 'lost',
  // A row that another transaction holds, and the server's `statement_timeout`.
  '55P03': 'fail',
  '57014': 'fail',
};

/** Read-only (a standby); too many connections; starting up or shutting down. */
const OTHER_HOST = new Set(['25006', '53300', '57P03']);

/** What to do about the error of a statement that was sent in a session. */
export async function reactionTo(error: unknown, session: Session): Promise<Reaction> {
  // Without an answer, it may have run. With an error as the answer, the server has rolled it back.
  if (!(error instanceof pg.DatabaseError)) return 'lost';
  const { code = '', routine } = error;
  const reaction = REACTIONS[code];
  // RAISE in a trigger, whatever SQLSTATE it has chosen.
  if (routine === 'exec_stmt_raise' && reaction !== 'pause') return 'fail';
  if (reaction) return reaction;
  // It may be a trigger or a constraint that has failed with any other SQLSTATE, or the server.
  if (await canStore(session)) return 'repeat';
  return OTHER_HOST.has(code) ? 'move on' : 'lost';
}

/** Does not show whether the disk is full, because {@link CHECK} stores nothing. */
async function canStore(session: Session): Promise<boolean> {
  try {
    await session.query({ text: CHECK.text, values: [] });
    return true;
  } catch {
    return false;
  }
}

/** Whether there is no table (`undefined_table`). */
export function isMissingTable(error: unknown): boolean {
  return codeOf(error) === '42P01';
}

/** What may pass by itself. All other errors last until somebody changes the database or the configuration. */
const TRANSIENT = new Set([
  // Of the network and its names. The socket of a server that is starting may not exist yet.
  ...['ECONNREFUSED', 'ECONNRESET', 'ECONNABORTED', 'EPIPE', 'ETIMEDOUT', 'connect ENOENT'],
  ...['EHOSTDOWN', 'EHOSTUNREACH', 'ENETDOWN', 'ENETRESET', 'ENETUNREACH', 'EADDRNOTAVAIL'],
  ...['ENOTFOUND', 'EAI_AGAIN', 'EAI_FAIL'],
  // Of pg, which gives its own errors no code.
  ...['timeout expired', 'Query read timeout', 'Connection terminated unexpectedly'],
  // Of the connection. PgBouncer gives 08P01 to most of its errors; its database being away is the usual one.
  ...['08000', '08001', '08003', '08004', '08006', '08P01'],
  // A standby, which may be promoted; conflicts with other transactions, and their locks.
  ...['25006', '40001', '40P01', '55P03', '57014'],
  // No resources, such as connections; shutting down, after a crash, starting up.
  ...['53000', '53100', '53200', '53300', '57P01', '57P02', '57P03'],
]);

/**
 * Whether an error of {@link openPostgresStore} may pass without anybody's help, so that opening the store can
 * succeed later: the server refuses or resets connections, does not answer in time, is starting or
 * shutting down, is a standby or has too many connections, or its name does not resolve. A wrong password, a missing
 * database, table or privilege, TLS, and an invalid option are not transient. If there are several hosts, it is enough
 * that the error of one of them is.
 *
 * @example A program that starts before its database:
 * ```ts
 * async function open(): Promise<PostgresStore> {
 *   for (;;)
 *     try {
 *       return await openPostgresStore({ url });
 *     } catch (error) {
 *       if (!isTransient(error)) throw error;
 *       console.error((error as Error).message);
 *       await setTimeout(2_000); // of node:timers/promises
 *     }
 * }
 * ```
 */
export function isTransient(error: unknown): boolean {
  if (error instanceof PlantStoreError) return isTransient(error.cause);
  // Of several hosts, or of several addresses of one.
  if (error instanceof AggregateError && error.errors.some(isTransient)) return true;
  if (!(error instanceof Error)) return false;
  const { code, syscall } = error as NodeJS.ErrnoException;
  return [code, `${syscall} ${code}`, error.message].some((key) => TRANSIENT.has(String(key)));
}
