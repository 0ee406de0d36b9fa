import { setTimeout as delay } from 'node:timers/promises';

import { culpritOf, messageOf } from './errors.js';
import type { Row } from './rows.js';
import { openSession, type Session, type SessionOptions } from './session.js';
import type { Statement } from './statements.js';

/** A connection that is opened on demand, and again after a failure. */
export interface Connection {
  /**
   * Runs one statement at a time, as a transaction. Resolves once the transaction is durable.
   *
   * @throws Error also if the server may lose what was stored, or would not report that. If the connection
   * is open afterwards, the error is about the rows of the statement: others can be stored.
   */
  readonly query: (statement: Statement, ...values: string[]) => Promise<Row[]>;
  readonly isOpen: () => boolean;
  /** Closes the connection. The next query opens it again. */
  readonly close: () => void;
}

/** How often a statement is sent again if it conflicts with other transactions: for about a second. */
const MAX_CONFLICTS = 9;

/** Returns a function that creates connections to the host that accepts writes. */
export function createConnector(hosts: readonly URL[], options: SessionOptions): () => Connection {
  /** The index of the host to try next. If that host fails, it is the turn of the one after it. */
  let current = 0;
  let hasNames = true;

  return () => {
    let session: Session | undefined;
    let host = 0;

    async function query({ name, text }: Statement, ...values: string[]): Promise<Row[]> {
      const failures: HostFailure[] = [];
      let conflicts = 0;
      for (;;) {
        let isSent = false;
        const isNamed = hasNames;
        try {
          if (!session || session.isClosed()) session = await open();
          isSent = true;
          return await session.query({ ...(isNamed && { name }), text, values });
        } catch (error) {
          options.signal.throwIfAborted();
          const culprit = isSent ? culpritOf(error) : 'server';
          if (culprit === 'server' || culprit === 'connection') {
            failures.push([String(hosts[host]?.host), error]);
            leaveHost();
          }
          if (culprit === 'connection' || failures.length === hosts.length) throw errorOf(failures);
          if (culprit === 'rows' || (culprit === 'name' && !isNamed)) throw error;
          if (culprit === 'conflict' && conflicts === MAX_CONFLICTS) throw error;
          if (culprit === 'name') hasNames = false;
          // Exponential, with jitter: the other transactions with these ids have to commit.
          if (culprit === 'conflict') await delay((2 ** ++conflicts * (1 + Math.random())) / 2);
        }
      }
    }

    function open(): Promise<Session> {
      host = current;
      return openSession(String(hosts[host]), options.timeoutMs / hosts.length, options);
    }

    function leaveHost(): void {
      session?.close();
      if (current === host) current = (host + 1) % hosts.length;
    }

    return {
      query,
      isOpen: () => session?.isClosed() === false,
      close: () => session?.close(),
    };
  };
}

type HostFailure = [host: string, error: unknown];

/** The error of one host as it is, or one that names the error of each host. */
function errorOf(failures: readonly HostFailure[]): unknown {
  const errors = failures.map(([, error]) => error);
  const messages = failures.map(([host, error]) => `${host}: ${messageOf(error)}`);
  return errors.length === 1 ? errors[0] : new AggregateError(errors, messages.join('; '));
}
