/*
 * Prints the options for c8: what needs a server is measured where its tests can run.
 */
import { missing } from './cluster.js';

const reason = missing('pgbouncer');
if (reason) {
  console.error(`the coverage of the PostgreSQL store is not measured: ${reason}`);
  const files = ['src/postgres/**', 'src/program/{database,transfer}.ts'];
  console.log(files.map((name) => `--exclude=${name}`).join(' '));
}
