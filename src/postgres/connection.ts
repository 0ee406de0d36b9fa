import { setTimeout as delay } from 'node:timers/promises';

import { messageOf } from '../system-error.js';
import { reactionTo, type Reaction } from './errors.js';
import { openSession, type Session, type SessionOptions } from './session.js';
import type { Row } from './rows.js';
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
  /** Closes the connection, which must not be used any more. */
  readonly close: () => void;
}

/**
 * How often a statement is sent again after each reaction. It conflicts with other transactions for about a
 * second at most.
 */
const TRIES = { pause: 9, unprepare: 1, repeat: 1, fail: 0, lost: 0 };

const CLOSED = 'the store is closed';

/** Creates connections to the host that accepts writes. */
export interface Connector {
  readonly connect: () => Connection;
  /** Closes all connections, also those that are created later. */
  readonly close: () => void;
}

export function createConnector(hosts: readonly URL[], options: SessionOptions): Connector {
  const connections = new Set<Connection>();
  let isClosed = false;
  /** The index of the host to try next. If that host fails, it is the turn of the one after it. */
  let current = 0;
  let prepares = true;

  function connect(): Connection {
    let session: Session | undefined;
    let host = 0;

    async function open(): Promise<Session> {
      if (isClosed) throw new Error(CLOSED);
      host = current;
      const opened = await openSession(
        String(hosts[host]),
        options.timeoutMs / hosts.length,
        options,
      );
      if (isClosed) opened.close();
      return opened;
    }

    async function query({ name, text }: Statement, ...values: string[]): Promise<Row[]> {
      /** How often each reaction to an error may still be followed by another try. */
      const left: Record<Reaction, number> = { ...TRIES, 'move on': hosts.length - 1 };
      const failures: HostFailure[] = [];
      for (;;) {
        let to: Session | undefined;
        try {
          if (!session || session.isClosed()) session = await open();
          to = session;
          return await to.query({ ...(prepares && { name }), text, values });
        } catch (error) {
          if (isClosed) throw new Error(CLOSED, { cause: error });
          // If no session was opened, the statement has not been sent.
          const reaction = to ? await reactionTo(error, to) : 'move on';
          const isLeft = reaction === 'move on' || reaction === 'lost';
          if (isLeft) failures.push({ host: String(hosts[host]?.host), error });
          if (isLeft) leaveHost();
          if (left[reaction]-- === 0) throw isLeft ? errorOf(failures) : error;
          if (reaction === 'unprepare') prepares = false;
          if (reaction === 'pause') await backoff(TRIES.pause - left.pause);
        }
      }
    }

    function leaveHost(): void {
      session?.close();
      session = undefined;
      if (current === host) current = (host + 1) % hosts.length;
    }

    const connection: Connection = {
      query,
      isOpen: () => session?.isClosed() === false,
      close() {
        connections.delete(connection);
        session?.close();
      },
    };
    connections.add(connection);
    return connection;
  }

  return {
    connect,
    close() {
      isClosed = true;
      for (const connection of connections) connection.close();
    },
  };
}

interface HostFailure {
  readonly host: string;
  readonly error: unknown;
}

/** The error of one host as it is, or one that names the error of each host. */
function errorOf(failures: readonly HostFailure[]): unknown {
  const errors = failures.map(({ error }) => error);
  if (errors.length === 1) return errors[0];
  const messages = failures.map(({ host, error }) => `${host}: ${messageOf(error)}`);
  return new AggregateError(errors, messages.join('; '));
}

/** Exponential, with jitter: the other transactions with these ids have to commit. */
async function backoff(tries: number): Promise<void> {
  await delay((2 ** tries * (1 + Math.random())) / 2);
}
