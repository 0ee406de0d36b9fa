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
 * Begins a session that stores plants. Each query may take `timeoutMs`; the server ends it before.
 */
export function beginStoring(timeoutMs: number): Query {
  // Less than half: a batch with a plant whose trigger takes longer is stored in halves, for which
  // there must be time.
  const statementTimeout = Math.ceil(0.4 * timeoutMs);
  // Short: plants in a batch with one whose row is locked may have to wait for this several times.
  const lockTimeout = Math.ceil(timeoutMs / 50);
  return [BEGIN_STORING, String(statementTimeout), String(lockTimeout)];
}

/** In place of a password from the environment or a file of pg. */
function noPassword(): never {
  throw new Error('no password is configured, and the server asks for one');
}

/** OpenSSL names neither the file nor, if it is an encrypted key, the reason. */
function nameFiles(error: unknown): unknown {
  if (!String(codeOf(error)).startsWith('ERR_OSSL_')) return error;
  const rule = 'must be PEM files with a certificate and its key, which must not be encrypted';
  return new Error(`sslcert and sslkey: ${rule}: ${messageOf(error)}`, { cause: error });
}

/** Opens a session. Rejects if the server cannot be used as it is, with the reason. */
export async function openSession(
  url: string,
  { password, connectMs, queryMs, begin, signal }: SessionOptions,
): Promise<Session> {
  signal.throwIfAborted();
  let isClosed = false;
  let isWaitCancelled = false;

  const client = new pg.Client({
    application_name: 'plant-store',
    ssl: false,
    sslnegotiation: 'postgres',
    connectionString: url,
    // Ends a reading, whose statements have no time limit, if the machine of the server is lost.
    keepAlive: true,
    connectionTimeoutMillis: connectMs,
    ...(queryMs !== undefined && { query_timeout: queryMs }),
  });
  // Not as an option of the constructor: the password of the connection string would replace it. pg
  // calls a function, and waits for it, only if the server asks for a password.
  if (password !== undefined) Object.assign(client, { password });
  else if (new URL(url).password === '') Object.assign(client, { password: noPassword });
  // Before 8.23.1, pg does not pass the host to `tls.connect`. If it is an IP address, Node would
  // then accept a certificate for `localhost` instead.
  Object.assign(client.ssl, { host: client.host });
  signal.addEventListener('abort', close);
  // Without a listener, an `error` event would end the process.
  client.on('error', close);
  // The plants are committed, but a standby may not have them: the server only warns of that.
  client.on('notice', ({ routine }) => {
    if (routine === 'SyncRepWaitForLSN') isWaitCancelled = true;
  });

  function close(): void {
    isClosed = true;
    signal.removeEventListener('abort', close);
    // Not end(), which waits for the server.
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
