import pg from 'pg';

import { codeOf } from '../system-error.js';
import { messageOf } from './errors.js';
import type { Row } from './rows.js';
import { BEGIN_STORING, type Statement } from './statements.js';

/**
 * A password, or a function that is called for each new connection to a server that asks for a
 * password.
 *
 * @example
 * ```ts
 * const password: Password = async () => (await readFile('password', 'utf8')).trim();
 * ```
 */
export type Password = string | (() => string | Promise<string>);

/** A connection to one server, until it fails or is closed. */
export interface Session {
  /**
   * Runs a statement as a transaction. Must not be called again until it has settled.
   *
   * @throws Error of pg, or an Error with the reason if the result must not be trusted.
   */
  query(statement: Statement, ...values: readonly string[]): Promise<Row[]>;
  isClosed(): boolean;
  close(): void;
}

/** A statement and its parameters. */
type Query = readonly [statement: Statement, ...values: readonly string[]];

export interface SessionOptions {
  readonly password: Password | undefined;
  /** How long connecting may take, in milliseconds. */
  readonly connectMs: number;
  /** How long each query may take, in milliseconds. Default: no limit. */
  readonly queryMs?: number;
  /** The first query, which sets up the session. */
  readonly begin: Query;
  /** Closes all sessions, also while they are opened. */
  readonly signal: AbortSignal;
}

/** Makes pg return columns as text, whatever type parsers the application has registered. */
const TEXT = { getTypeParser: () => String };

/**
 * Begins a session that stores plants. The server cancels a statement before the `timeoutMs` of its
 * query are over.
 */
export function beginStoring(timeoutMs: number): Query {
  // Less than half: if the trigger of one plant takes longer, the batch is stored in halves, and
  // time must be left for them.
  const statementTimeout = Math.ceil(0.4 * timeoutMs);
  // Short: plants in the same batch as a plant whose row is locked may wait for it several times.
  const lockTimeout = Math.ceil(timeoutMs / 50);
  return [BEGIN_STORING, String(statementTimeout), String(lockTimeout)];
}

/** The password if none is configured. Without it, pg would read `PGPASSWORD` or `~/.pgpass`. */
function noPassword(): never {
  throw new Error('no password is configured, and the server asks for one');
}

/** Adds what an error of OpenSSL lacks: the files, and that a key must not be encrypted. */
function nameFiles(error: unknown): unknown {
  if (!String(codeOf(error)).startsWith('ERR_OSSL_')) return error;
  const rule = 'must be PEM files with a certificate and its key, which must not be encrypted';
  return new Error(`sslcert and sslkey: ${rule}: ${messageOf(error)}`, { cause: error });
}

/** Opens a session. Rejects with the reason if the server cannot be used as it is. */
export async function openSession(
  url: string,
  { password, connectMs, queryMs, begin, signal }: SessionOptions,
): Promise<Session> {
  signal.throwIfAborted();
  let isClosed = false;
  let isWaitCancelled = false;

  const client = new pg.Client({
    // Defaults, so that pg does not read `PG*` variables. Parameters of the URL replace them.
    application_name: 'plant-store',
    ssl: false,
    sslnegotiation: 'postgres',
    connectionString: url,
    // Ends a reading, whose statements have no time limit, if the machine of the server is lost.
    keepAlive: true,
    connectionTimeoutMillis: connectMs,
    ...(queryMs !== undefined && { query_timeout: queryMs }),
  });
  // Not an option of the constructor: the password of the connection string would replace it. If
  // the password is a function, pg calls and awaits it only if the server asks for a password.
  if (password !== undefined) Object.assign(client, { password });
  else if (new URL(url).password === '') Object.assign(client, { password: noPassword });
  // Before 8.23.1, pg does not pass the host to `tls.connect`. If the host is an IP address, Node
  // would then accept a certificate for `localhost`. Without TLS, `ssl` is false, and nothing is
  // assigned.
  Object.assign(client.ssl, { host: client.host });
  signal.addEventListener('abort', close);
  // Without a listener, an `error` event would end the process.
  client.on('error', close);
  // The wait for a synchronous standby was cancelled: the plants are committed, but the standby may
  // not have them. The server only warns of this.
  client.on('notice', ({ routine }) => {
    if (routine === 'SyncRepWaitForLSN') isWaitCancelled = true;
  });

  function close(): void {
    isClosed = true;
    signal.removeEventListener('abort', close);
    // Not `end()`, which waits for the server.
    client.connection.stream.destroy();
  }

  async function query(statement: Statement, ...values: readonly string[]): Promise<Row[]> {
    const { rows } = await client.query<Row>({ ...statement, values: [...values], types: TEXT });
    if (isWaitCancelled) throw new Error('the wait for a synchronous standby was cancelled');
    const refusal = rows[0]?.refusal;
    if (refusal) throw new Error(refusal);
    return rows;
  }

  try {
    await client.connect();
    await query(...begin);
  } catch (error) {
    close();
    throw nameFiles(error);
  }
  return { query, close, isClosed: () => isClosed };
}
