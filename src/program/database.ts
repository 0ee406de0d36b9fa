import { reportToConsole } from '../report.js';
import { readPassword } from './credentials.js';
import type { ServedStore } from './serve.js';
import type { StoreSettings } from './settings.js';

/** Opens the store in a database. */
export async function openDatabase(url: string, settings: StoreSettings): Promise<ServedStore> {
  const { openPostgresStore } = await loadStore();
  const passwordFile = settings.PLANT_STORE_DATABASE_PASSWORD_FILE;
  const store = await openPostgresStore({
    url,
    connections: settings.PLANT_STORE_DATABASE_CONNECTIONS,
    acceptDataLoss: settings.PLANT_STORE_DATABASE_ACCEPT_DATA_LOSS,
    ...(passwordFile !== undefined && { password: () => readPassword(passwordFile) }),
    // Without the cause: its stack adds nothing to the message.
    report: (message) => reportToConsole(message),
  });
  return { store, lines: [`database: ${store.name}`], check: () => store.check() };
}

/** Not a static import: pg is an optional peer, and takes time to load. */
async function loadStore(): Promise<typeof import('../postgres/index.js')> {
  // With this variable, pg would load another client library.
  delete process.env.NODE_PG_FORCE_NATIVE;
  try {
    return await import('../postgres/index.js');
  } catch (cause) {
    const message = 'the package pg cannot be loaded; install it with: npm install pg';
    throw new Error(message, { cause });
  }
}
