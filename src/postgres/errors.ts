import pg from 'pg';

import { PlantStoreError } from '../store.js';
import { codeOf } from '../system-error.js';

/**
 * The server refuses the rows of a statement, and may take others. Any other error of a
 * `Connection` means that no plant can be stored at the moment.
 */
export class RefusedRows extends Error {
  constructor(override readonly cause: unknown) {
    super(messageOf(cause));
  }
}

/**
 * Why a statement failed:
 *
 * - `conflict`: it conflicts with other transactions, and can be sent again.
 * - `server`: the server cannot store anything at the moment, and has rolled the statement back.
 * - `connection`: there is no answer, or the answer shows that plants may be lost, because of a
 *   cancelled wait for a standby or of a setting such as `fsync=off`. The statement may have run,
 *   so it is not sent again.
 * - `rows`: the server refuses the rows of the statement, with any other error. It may store other
 *   rows.
 */
export type Fault = 'conflict' | 'server' | 'connection' | 'rows';

/** By SQLSTATE: see https://www.postgresql.org/docs/current/errcodes-appendix.html. */
const FAULTS: Readonly<Record<string, Fault>> = {
  // `serialization_failure` and `deadlock_detected`.
  '40001': 'conflict',
  '40P01': 'conflict',
  // `read_only_sql_transaction`: the server is a standby.
  '25006': 'server',
};

/**
 * SQLSTATEs about the connection (08), missing resources (53), an operator or a crash (57P), the
 * system (58) and internal errors (XX).
 */
const OF_THE_SERVER = /^(?:08|53|57P|58|XX)/;

export function faultOf(error: unknown): Fault {
  if (!(error instanceof pg.DatabaseError)) return 'connection';
  const { code = '' } = error;
  return FAULTS[code] ?? (OF_THE_SERVER.test(code) ? 'server' : 'rows');
}

/**
 * The message of an error, with the system call and address that `reasonOf` leaves out. An
 * `AggregateError` without a message, which Node creates if no address of a host can be reached,
 * has the messages of its errors.
 */
export function messageOf(error: unknown): string {
  // The reason with which a signal was aborted may be anything.
  const { message = String(error) } = (error ?? {}) as Partial<Error>;
  if (message || !(error instanceof AggregateError)) return message;
  return error.errors.map(messageOf).join('; ');
}

/** Whether a statement failed because it names a table that does not exist. */
export function isTableMissing(error: unknown): boolean {
  return error instanceof RefusedRows && codeOf(error.cause) === '42P01';
}

/** The error `unavailable` of a store. `name` is the name of its database. */
export function unavailableBecause(name: string, error: unknown): PlantStoreError {
  const cause = error instanceof RefusedRows ? error.cause : error;
  return new PlantStoreError('unavailable', `${name}: ${messageOf(cause)}`, { cause });
}

/** System calls, codes and messages of errors of the network. pg's errors have only messages. */
const OF_THE_NETWORK = new Set<unknown>([
  ...['connect', 'getaddrinfo'],
  ...['ECONNRESET', 'EPIPE', 'ETIMEDOUT'],
  ...['timeout expired', 'Query read timeout', 'Connection terminated unexpectedly'],
]);

/** `lock_not_available` and `query_canceled`: other transactions lock the table. */
const LOCKED: readonly unknown[] = ['55P03', '57014'];

/**
 * Whether an error of {@link openPostgresStore} may go away without anybody's help, so that opening
 * the store can succeed later: the server refuses or resets connections, does not answer in time,
 * is starting or shutting down, is a standby, has too many connections or an internal error, or its
 * name does not resolve. A wrong password, a missing database, table or privilege, TLS, and an
 * invalid option are not transient. With several hosts, an error is transient if the error of one
 * host is.
 *
 * @example A program that starts before its database:
 * ```ts
 * import { setTimeout } from 'node:timers/promises';
 *
 * async function open(): Promise<PostgresStore> {
 *   for (;;)
 *     try {
 *       return await openPostgresStore({ url });
 *     } catch (error) {
 *       if (!isTransient(error)) throw error;
 *       console.error((error as Error).message);
 *       await setTimeout(2_000);
 *     }
 * }
 * ```
 */
export function isTransient(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (isTransient(error.cause)) return true;
  // The errors of several hosts, or of several addresses of one host.
  if (error instanceof AggregateError && error.errors.some(isTransient)) return true;
  const { code, syscall, message } = error as NodeJS.ErrnoException;
  if (error instanceof pg.DatabaseError)
    return ['server', 'conflict'].includes(faultOf(error)) || LOCKED.includes(code);
  // Without the right to use a socket, another attempt would fail, too.
  return code !== 'EACCES' && [syscall, code, message].some((each) => OF_THE_NETWORK.has(each));
}
