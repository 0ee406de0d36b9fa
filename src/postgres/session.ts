import pg from 'pg';

import { codeOf } from '../system-error.js';
import { messageOf } from './errors.js';
import { checkRefusal, FULL_REFUSAL } from './refusal.js';
import type { Row } from './rows.js';
import type { Statement } from './statements.js';

/**
 * A password, or a function that is called for each new connection to a server that asks for a password.
 *
 * @example
 * ```ts
 * const password: Password = async () => (await readFile('password', 'utf8')).trim();
 * ```
 */
export type Password = string | (() => string | Promise<string>);

/** A connection to one server, until it fails or is closed. */
export type Session = Awaited<ReturnType<typeof openSession>>;

export interface SessionOptions {
  readonly password: Password | undefined;
  readonly timeoutMs: number;
  readonly acceptDataLoss: boolean;
  /** Closes all sessions, also while they are opened. */
  readonly signal: AbortSignal;
}

/** Makes pg return columns as text, whatever type parsers the application has registered. */
const AS_TEXT = { rowMode: 'array', types: { getTypeParser: () => String } } as const;

/** Sets what must not depend on the configuration of the role, and checks what cannot be set. */
const CONFIGURE = `SELECT count(set_config(name, value, false)), ${FULL_REFUSAL}
  FROM json_each_text($1::json) AS wanted (name, value) JOIN pg_settings USING (name)`;

/** The settings for {@link CONFIGURE}, which leaves out those that the server's release does not have. */
function settings(timeoutMs: number): Readonly<Record<string, string | number>> {
  return {
    client_min_messages: 'warning',
    exit_on_error: 'off',
    idle_session_timeout: 0,
    transaction_timeout: 0,
    // Less than half: a batch with a plant whose trigger takes longer is stored in halves, for which there must be
    // time.
    statement_timeout: Math.ceil(0.4 * timeoutMs),
    // Short: plants in a batch with one whose row is locked may have to wait for this several times.
    lock_timeout: Math.ceil(timeoutMs / 50),
  };
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

export async function openSession(
  url: string,
  connectionTimeoutMs: number,
  { password, timeoutMs, acceptDataLoss, signal }: SessionOptions,
) {
  signal.throwIfAborted();
  let isClosed = false;
  let isWaitCancelled = false;

  const client = new pg.Client({
    application_name: 'plant-store',
    ssl: false,
    sslnegotiation: 'postgres',
    connectionString: url,
    keepAlive: true,
    connectionTimeoutMillis: connectionTimeoutMs,
    query_timeout: timeoutMs,
  });
  // Not as an option of the constructor: the password of the connection string would replace it. pg calls a function,
  // and waits for it, only if the server asks for a password.
  if (password !== undefined) Object.assign(client, { password });
  else if (new URL(url).password === '') Object.assign(client, { password: noPassword });
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

  /** As `query` of a `Connection`. A statement with a name is prepared. */
  async function query(config: Statement & { readonly values: string[] }): Promise<Row[]> {
    const { rows } = await client.query<(string | null)[]>({ ...AS_TEXT, ...config });
    if (isWaitCancelled) throw new Error('the wait for a synchronous standby was cancelled');
    checkRefusal(rows, acceptDataLoss);
    return rows;
  }

  try {
    await client.connect();
    await query({ text: CONFIGURE, values: [JSON.stringify(settings(timeoutMs))] });
  } catch (error) {
    close();
    throw nameFiles(error);
  }
  return { query, close, isClosed: () => isClosed };
}
