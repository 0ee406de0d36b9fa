import { setTimeout as delay } from 'node:timers/promises';

import { culpritOf, messageOf } from './errors.js';
import type { Row } from './rows.js';
import { openSession, type Session, type SessionOptions } from './session.js';
import type { Statement } from './statements.js';

/** A connection that is opened on demand, and again after a failure. */
export type Connection = ReturnType<ReturnType<typeof createConnector>>;

/** How often a statement is sent again if it conflicts with other transactions: for about a second. */
const MAX_CONFLICTS = 9;

/** Returns a function that creates connections to the host that accepts writes. */
export function createConnector(hosts: readonly URL[], options: SessionOptions) {
  /** The index of the host to try next. If that host fails, it is the turn of the one after it. */
  let current = 0;
  /**
   * Whether statements are sent with their names: until a server does not know one, or has another one of that name.
   */
  let usesNames = true;

  return () => {
    let session: Session | undefined;
    let host = 0;

    /**
     * Runs a statement as a transaction. Resolves once the transaction is durable. Must not be called again until then.
     *
     * @throws Error also if the server may lose what it has stored. If the connection is open afterwards, only the rows
     * of this statement are at fault: others can be stored.
     */
    async function query({ name, text }: Statement, ...values: string[]): Promise<Row[]> {
      const failures: Error[] = [];
      let conflicts = 0;
      for (;;) {
        let isSent = false;
        const isNamed = usesNames;
        try {
          if (!session || session.isClosed()) session = await open();
          isSent = true;
          return await session.query({ ...(isNamed && { name }), text, values });
        } catch (error) {
          options.signal.throwIfAborted();
          const culprit = isSent ? culpritOf(error) : 'server';
          if (culprit === 'server' || culprit === 'connection') {
            const message = `${hosts[host]?.host}: ${messageOf(error)}`;
            failures.push(new Error(message, { cause: error }));
            session?.close();
            // Another connection may have left this host already.
            if (current === host) current = (host + 1) % hosts.length;
          }
          if (culprit === 'connection' || failures.length === hosts.length)
            throw failures.length === 1 ? error : new AggregateError(failures);
          if (culprit === 'rows' || (culprit === 'name' && !isNamed)) throw error;
          if (culprit === 'conflict' && conflicts === MAX_CONFLICTS) throw error;
          if (culprit === 'name') usesNames = false;
          // Exponential, with jitter: the other transactions with these ids have to commit.
          if (culprit === 'conflict') await delay((2 ** ++conflicts * (1 + Math.random())) / 2);
        }
      }
    }

    function open(): Promise<Session> {
      host = current;
      return openSession(String(hosts[host]), options.timeoutMs / hosts.length, options);
    }

    return {
      query,
      isOpen: () => session?.isClosed() === false,
      /** Closes the connection. The next query opens it again. */
      close: () => session?.close(),
    };
  };
}
