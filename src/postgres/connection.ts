import { setTimeout as delay } from 'node:timers/promises';

import { faultOf, messageOf, RefusedRows } from './errors.js';
import type { Row } from './rows.js';
import { openSession, type Session, type SessionOptions } from './session.js';
import type { Statement } from './statements.js';

/** A connection to one of several hosts. Opens a session on demand, and another after a failure. */
export interface Connection {
  /**
   * Runs a statement as a transaction. Resolves once the transaction is durable. Must not be called
   * again until it has settled.
   *
   * @throws RefusedRows if the server refuses the rows of this statement, and may take others.
   * @throws Error otherwise: no host can be used at the moment, or the answer was lost and the
   * statement may have run.
   */
  query(statement: Statement, ...values: readonly string[]): Promise<Row[]>;
  /** Closes the session. The next query opens another one. */
  close(): void;
}

/** How often a statement that conflicts with others is sent again: within about a second. */
const MAX_CONFLICTS = 9;

/** Returns a function that creates connections. All of them use the same host, until it fails. */
export function createConnector(hosts: readonly URL[], options: SessionOptions): () => Connection {
  /** The index of the host to try next. */
  let current = 0;

  return function createConnection() {
    let session: Session | undefined;
    /** The index of the host of the session. */
    let host = 0;

    async function query(statement: Statement, ...values: readonly string[]): Promise<Row[]> {
      const failures: Error[] = [];
      let conflicts = 0;
      for (;;) {
        let isSent = false;
        try {
          if (!session || session.isClosed()) session = await open();
          isSent = true;
          return await session.query(statement, ...values);
        } catch (error) {
          options.signal.throwIfAborted();
          // A session that cannot be opened has run no statement, so another host may be tried.
          switch (isSent ? faultOf(error) : 'server') {
            case 'rows':
              throw new RefusedRows(error);
            case 'conflict':
              if (conflicts === MAX_CONFLICTS) throw new RefusedRows(error);
              conflicts++;
              // Exponential backoff with jitter: meanwhile, the other transactions can commit.
              await delay((2 ** conflicts * (1 + Math.random())) / 2);
              break;
            case 'server':
              failures.push(leaveHost(error));
              if (failures.length === hosts.length) throw mergeErrors(failures);
              break;
            case 'connection':
              failures.push(leaveHost(error));
              throw mergeErrors(failures);
          }
        }
      }
    }

    function open(): Promise<Session> {
      host = current;
      return openSession(String(hosts[host]), options);
    }

    /**
     * Closes the session, and makes the next host the current one. Returns the error with the name
     * of the host.
     */
    function leaveHost(error: unknown): Error {
      session?.close();
      // Another connection may have left this host already.
      if (current === host) current = (host + 1) % hosts.length;
      return new Error(`${hosts[host]?.host}: ${messageOf(error)}`, { cause: error });
    }

    return { query, close: () => session?.close() };
  };
}

/** A single error as it is, or an error that holds all of them, each with the name of its host. */
function mergeErrors(failures: readonly Error[]): unknown {
  return failures.length === 1 ? failures[0]?.cause : new AggregateError(failures);
}
