export { isTransient } from './errors.js';
export type { Password } from './session.js';
export { openPostgresStore, type PostgresStore, type PostgresStoreOptions } from './store.js';
