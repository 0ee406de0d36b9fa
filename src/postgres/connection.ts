import { setTimeout as delay } from 'node:timers/promises';

import pg from 'pg';

import { codeOf } from '../system-error.js';
import { passwordFrom, type Password } from './password.js';
import { checkRefusal, REFUSAL } from './refusal.js';
import { type Row, type Statement } from './rows.js';

/** A connection that is opened on demand, and again after a failure. */
export interface Connection {
  /**
   * Runs one statement at a time, as a transaction. Resolves once the transaction is durable.
   *
   * @throws Error also if the server may lose what was stored, or does not say so.
   */
  readonly query: (statement: Statement, ...values: readonly string[]) => Promise<Row[]>;
  readonly close: () => void;
}

// See https://www.postgresql.org/docs/current/errcodes-appendix.html.
const SERIALIZATION_FAILURES = ['40001', '40P01'];
const MAX_TRIES = 10;
/** PgBouncer in transaction mode prepares a statement on one connection and runs it on another. */
const NOT_PREPARED = ['26000', '42P05'];
/** Read-only (a standby); too many connections; starting up or shutting down. */
const TRY_NEXT_HOST = ['25006', '53300', '57P03'];
/** Classes: invalid data, a violated constraint, a limit (an index entry's size), a trigger. */
const ABOUT_ROWS = ['22', '23', '54', 'P0'];

/** Whether the server refused rows, and everything else is in order. */
export function isAboutRows(error: unknown): boolean {
  return ABOUT_ROWS.includes(String(codeOf(error)).slice(0, 2));
}

/** pg.Client itself would also send PGOPTIONS and PGREPLICATION of the environment. */
class Client extends pg.Client {
  getStartupConf(): Record<string, unknown> {
    return { user: this.user, database: this.database, application_name: 'plant-store' };
  }
}

/** Returns columns as text, whatever type parsers the application has registered with pg. */
const PLAIN = { rowMode: 'array', types: { getTypeParser: () => String } } as const;

/** Sets what must not depend on the configuration of the role, then looks for what cannot be set. */
const PREPARE = `SELECT count(set_config(name, value, false)), ${REFUSAL} FROM (VALUES
    ('client_min_messages', 'warning')
  ) AS wanted (name, value) JOIN pg_settings USING (name)`;

export interface ConnectorOptions {
  readonly hosts: readonly URL[];
  readonly password: Password | undefined;
  readonly timeoutMs: number;
  readonly acceptDataLoss: boolean;
}

/** Returns a function that creates connections to the host that accepts writes. */
export function createConnector(options: ConnectorOptions): () => Connection {
  const { hosts, password, timeoutMs, acceptDataLoss } = options;
  /** The index of the host to try next. A failure of that host moves it to the next one. */
  let current = 0;
  let prepares = true;

  return () => {
    let client: Client | undefined;
    let host = 0;
    let cancelledWaits = 0;

    async function connect(): Promise<Client> {
      host = current;
      const url = new URL(String(hosts[host]));
      const given = await passwordFrom(password, timeoutMs / hosts.length);
      if (given) url.password = encodeURIComponent(given);
      const opened = (client = new Client({
        ssl: false,
        sslnegotiation: 'postgres',
        connectionString: url.href,
        keepAlive: true,
        connectionTimeoutMillis: timeoutMs / hosts.length,
        query_timeout: timeoutMs,
      }));
      // Without a listener, an `error` event would end the process.
      opened.on('error', () => {
        if (client === opened) close();
      });
      // The plants are committed, but a standby may not have them: the server only warns of that.
      opened.on('notice', ({ routine }) => {
        if (routine === 'SyncRepWaitForLSN') cancelledWaits++;
      });
      await opened.connect();
      const { rows } = await opened.query<(string | null)[]>({ ...PLAIN, text: PREPARE });
      checkRefusal(rows, acceptDataLoss);
      return opened;
    }

    function close(): void {
      // Not end(), which waits for the server.
      client?.connection.stream.destroy();
      client = undefined;
    }

    async function run(
      to: Client,
      { name, text }: Statement,
      values: readonly string[],
    ): Promise<Row[]> {
      const before = cancelledWaits;
      const query = { ...PLAIN, ...(prepares && { name }), text, values: [...values] };
      const { rows } = await to.query<(string | null)[]>(query);
      if (cancelledWaits > before)
        throw new Error('the wait for a synchronous standby was cancelled');
      checkRefusal(rows, acceptDataLoss);
      return rows;
    }

    async function query(statement: Statement, ...values: readonly string[]): Promise<Row[]> {
      let [tries, hostsLeft] = [0, hosts.length];
      for (;;) {
        const prepared = prepares;
        let to: Client | undefined;
        try {
          to = client ?? (await connect());
          return await run(to, statement, values);
        } catch (error) {
          const code = String(codeOf(error));
          if (isAboutRows(error)) throw error;
          if (SERIALIZATION_FAILURES.includes(code) && ++tries < MAX_TRIES)
            // Exponential backoff with jitter: the other transactions with these ids have to commit.
            await delay((2 ** tries * (1 + Math.random())) / 2);
          else if (NOT_PREPARED.includes(code) && prepared) prepares = false;
          else {
            close();
            if (current === host) current = (host + 1) % hosts.length;
            const wasSent = to && !TRY_NEXT_HOST.includes(code);
            if (wasSent || --hostsLeft === 0) throw error;
          }
        }
      }
    }

    return { query, close };
  };
}
