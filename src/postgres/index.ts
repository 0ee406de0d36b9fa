export { isTransient } from './errors.js';
export { readPostgresPlants, type ReadPostgresPlantsOptions } from './read.js';
export type { Password } from './session.js';
export { openPostgresStore, type PostgresStore, type PostgresStoreOptions } from './store.js';
