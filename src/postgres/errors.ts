import pg from 'pg';

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
