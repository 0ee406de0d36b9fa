import type { Connection } from './connection.js';
import { CHECK } from './rows.js';

/**
 * Checks whether plants can be stored, on a connection that the first check opens. Checks at the same time
 * share one statement.
 */
export function createCheck(connection: Connection): {
  check: () => Promise<void>;
  close: () => Promise<void>;
} {
  let running: Promise<void> | undefined;
  let isClosed = false;

  async function run(): Promise<void> {
    try {
      await connection.query(CHECK);
    } finally {
      running = undefined;
    }
  }

  return {
    async check() {
      if (isClosed) throw new Error('the store is closed');
      await (running ??= run());
    },
    async close() {
      isClosed = true;
      await running?.catch(() => undefined);
      connection.close();
    },
  };
}
