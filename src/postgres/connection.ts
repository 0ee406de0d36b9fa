import { setTimeout as delay } from 'node:timers/promises';

import { isTimeout, kindOf, type ErrorKind } from './errors.js';
import { CHECK, type Row, type Statement } from './rows.js';
import { openSession, type Password, type Session } from './session.js';

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
  readonly close: () => void;
}

/** How often a statement that conflicts with other transactions is sent: for about a second. */
const MAX_TRIES = 10;

export interface ConnectorOptions {
  readonly hosts: readonly URL[];
  readonly password: Password | undefined;
  readonly timeoutMs: number;
  /** After how long the server ends a statement. Default: `timeoutMs`. */
  readonly statementTimeoutMs?: number;
  readonly acceptDataLoss: boolean;
}

/** Returns a function that creates connections to the host that accepts writes. */
export function createConnector(options: ConnectorOptions): () => Connection {
  const { hosts, ...limits } = options;
  const { timeoutMs, statementTimeoutMs = timeoutMs } = limits;
  const connectionTimeoutMs = timeoutMs / hosts.length;
  /** The index of the host to try next. If that host fails, it is the turn of the one after it. */
  let current = 0;
  let prepares = true;

  return () => {
    let session: Session | undefined;
    let host = 0;

    async function open(): Promise<Session> {
      host = current;
      const limitsOfSession = { ...limits, statementTimeoutMs, connectionTimeoutMs };
      return openSession(String(hosts[host]), limitsOfSession);
    }

    async function query({ name, text }: Statement, ...values: string[]): Promise<Row[]> {
      let [tries, refusals, hostsLeft] = [0, 0, hosts.length];
      for (;;) {
        const prepared = prepares;
        let to: Session | undefined;
        try {
          if (!session || session.isClosed()) session = await open();
          to = session;
          return await to.query({ ...(prepared && { name }), text, values });
        } catch (error) {
          const kind = kindOf(error);
          if (kind === 'conflict') {
            if (++tries === MAX_TRIES) throw error;
            // Exponential backoff with jitter: the other transactions with these ids have to commit.
            await delay((2 ** tries * (1 + Math.random())) / 2);
          } else if (kind === 'unprepared' && prepared) prepares = false;
          else if (kind === 'rows') throw error;
          else if (await isRefusal(kind, name, to)) {
            // Only the second time: the cause of the first error may have ended before the check.
            if (++refusals === 2 || isTimeout(error)) throw error;
          } else {
            close();
            if (current === host) current = (host + 1) % hosts.length;
            const wasSent = to && kind !== 'server';
            if (wasSent || --hostsLeft === 0) throw error;
          }
        }
      }
    }

    function close(): void {
      session?.close();
      session = undefined;
    }

    return { query, isOpen: () => session?.isClosed() === false, close };
  };
}

/**
 * Whether an error was about the rows of a statement: it was if plants can still be stored in the same session.
 * {@link CHECK} cannot tell whether the disk is full, because it stores nothing.
 */
async function isRefusal(kind: ErrorKind, name: string, session?: Session): Promise<boolean> {
  if (!session || kind === 'outage' || name === CHECK.name) return false;
  try {
    await session.query({ text: CHECK.text, values: [] });
    return true;
  } catch {
    return false;
  }
}
