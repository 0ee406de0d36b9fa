/*
 * Prints the options for c8: src/postgres is measured where its tests can run.
 */
import { missing } from './cluster.js';

const reason = missing('pgbouncer');
if (reason) {
  console.error(`the coverage of src/postgres is not measured: ${reason}`);
  console.log('--exclude=src/postgres/**');
}
