import { connect } from 'node:net';

import pg from 'pg';

import { checkRefusal, REFUSAL } from './refusal.js';
import type { Row } from './rows.js';

/** A connection to one server, until it fails or is closed. */
export interface Session {
  /** As `query` of a `Connection`. A statement with a name is prepared. */
  readonly query: (statement: QueryConfig) => Promise<Row[]>;
  readonly close: () => void;
  readonly isClosed: () => boolean;
}

interface QueryConfig {
  readonly name?: string;
  readonly text: string;
  readonly values: string[];
}

export interface SessionOptions {
  readonly timeoutMs: number;
  readonly connectionTimeoutMs: number;
  /** After how long the server ends a statement, in ms. The client waits for `timeoutMs`, commit included. */
  readonly statementTimeoutMs: number;
  readonly acceptDataLoss: boolean;
}

class Client extends pg.Client {
  declare readonly processID: number;
  declare readonly secretKey: number;
  declare readonly unref: () => void;

  /** pg.Client itself would also send PGOPTIONS and PGREPLICATION of the environment. */
  getStartupConf(): Record<string, unknown> {
    return { user: this.user, database: this.database, application_name: 'plant-store' };
  }
}

/** Makes pg return columns as text, whatever type parsers the application has registered. */
const PLAIN = { rowMode: 'array', types: { getTypeParser: () => String } } as const;

/** Sets what must not depend on the configuration of the role, and checks what cannot be set. */
const PREPARE = `SELECT count(set_config(name, value, false)), ${REFUSAL}
  FROM json_each_text($1::json) AS wanted (name, value) JOIN pg_settings USING (name)`;

/** The settings for {@link PREPARE}, which leaves out those that the server's release does not have. */
function settings({
  timeoutMs,
  statementTimeoutMs,
}: SessionOptions): Readonly<Record<string, string | number>> {
  return {
    client_min_messages: 'warning',
    exit_on_error: 'off',
    idle_session_timeout: 0,
    transaction_timeout: 0,
    statement_timeout: statementTimeoutMs,
    // Short: plants in a batch with one whose row is locked may have to wait for this several times.
    lock_timeout: Math.ceil(timeoutMs / 50),
  };
}

export async function openSession(url: URL, options: SessionOptions): Promise<Session> {
  const { timeoutMs, connectionTimeoutMs, acceptDataLoss } = options;
  let isClosed = false;
  let isRunning = false;
  let cancelledWaits = 0;

  const client = new Client({
    ssl: false,
    sslnegotiation: 'postgres',
    connectionString: url.href,
    keepAlive: true,
    connectionTimeoutMillis: connectionTimeoutMs,
    query_timeout: timeoutMs,
  });
  // Without a listener, an `error` event would end the process.
  client.on('error', close);
  // The plants are committed, but a standby may not have them: the server only warns of that.
  client.on('notice', ({ routine }) => {
    if (routine === 'SyncRepWaitForLSN') cancelledWaits++;
  });

  function close(): void {
    if (isClosed) return;
    isClosed = true;
    // Not end(), which waits for the server. After the request to cancel, because PgBouncer forgets a client
    // that disconnects.
    const destroy = (): unknown => client.connection.stream.destroy();
    if (isRunning) cancel(client, timeoutMs, destroy);
    else destroy();
  }

  async function query(statement: QueryConfig): Promise<Row[]> {
    const waitsBefore = cancelledWaits;
    isRunning = true;
    try {
      const { rows } = await client.query<(string | null)[]>({ ...PLAIN, ...statement });
      isRunning = false;
      if (cancelledWaits > waitsBefore)
        throw new Error('the wait for a synchronous standby was cancelled');
      checkRefusal(rows, acceptDataLoss);
      return rows;
    } catch (error) {
      if (error instanceof pg.DatabaseError) isRunning = false;
      throw error;
    }
  }

  try {
    await client.connect();
    await query({ text: PREPARE, values: [JSON.stringify(settings(options))] });
  } catch (error) {
    close();
    throw error;
  }
  return { query, close, isClosed: () => isClosed };
}

/**
 * Cancels what runs on a connection: a statement that its client has given up would run on, and keep its
 * locks. A wait for a synchronous standby ends, too, but by then it can no longer acknowledge a plant.
 * The request is sent without TLS, as by libpq: the server accepts it, and its key is of no use afterwards.
 * Not by `cancel` of pg.Client, which is undocumented, has no timeout and never closes its connection.
 */
function cancel(client: Client, timeoutMs: number, done: () => unknown): void {
  const { host, port, processID, secretKey } = client;
  const request = Buffer.alloc(16);
  // See https://www.postgresql.org/docs/current/protocol-message-formats.html, CancelRequest.
  for (const [index, value] of [16, 80_877_102, processID, secretKey].entries())
    request.writeInt32BE(value, 4 * index);
  const socket = host.startsWith('/') ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host);
  // A failure changes nothing: then the timeouts of the server have to end the statement.
  socket.on('error', () => undefined).on('close', done);
  socket.setTimeout(timeoutMs, () => socket.destroy());
  // Not end(), which PgBouncer would take for a client that has disconnected.
  socket.resume().write(request);
  // Neither connection keeps the process alive.
  socket.unref();
  client.unref();
}
